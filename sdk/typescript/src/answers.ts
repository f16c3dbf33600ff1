// Written from chain/ethereum/answers.yaml by its test (go test ./chain/ethereum -run TypeScript -update).
// The first row with a pattern that is found in a text decides.
export const answers: { class: string; missing?: boolean; later?: boolean; patterns: string[] }[] = [
  {
    "class": "unknown",
    "patterns": [
      "vm exception while processing",
      "execution reverted",
      "^revert(ed)?\\b",
      "was added to the mempool but wasn.t confirmed"
    ]
  },
  {
    "class": "not_reached",
    "patterns": [
      "must be authenticated",
      "\\bunauthorized\\b",
      "invalid (api|access|project|app)[ -]?(key|id|token)",
      "missing (api|access|project) ?(key|id|token)",
      "(api|access) key (is )?(not (allowed|found|valid)|disabled|expired|invalid)"
    ]
  },
  {
    "class": "in_pool",
    "patterns": [
      "already ?known",
      "\\bknown transaction",
      "already imported",
      "existing tx?n? with same hash",
      "pool\\(alreadyimported\\b",
      "\\btx already exists in cache",
      "transaction with hash \\S+ is already in the system"
    ]
  },
  {
    "class": "free",
    "patterns": [
      "nonce has max value",
      "nonce exceeds (max|u64)"
    ]
  },
  {
    "class": "used",
    "patterns": [
      "nonce (is )?too low",
      "\\boldnonce\\b",
      "pool\\(stale\\)",
      "invalidtransaction::stale",
      "transaction already finalized",
      "^(internal_error: )?mined$"
    ]
  },
  {
    "class": "numbers",
    "patterns": [
      "invalid nonce; got (?<tx1>\\d+), expected (?<next1>\\d+)",
      "invalid nonce; expected (?<next2>\\d+), got (?<tx2>\\d+)",
      "account sequence mismatch, expected (?<next3>\\d+), got (?<tx3>\\d+)",
      "account sequence mismatch, got (?<tx4>\\d+), expected (?<next4>\\d+)"
    ]
  },
  {
    "class": "taken",
    "patterns": [
      "replacement transaction underpriced",
      "insufficient gas price to replace",
      "could not replace existing tx",
      "replaced by transaction with higher tip",
      "can.t replace blob-txn",
      "\\breplacementnotallowed\\b",
      "\\bownnoncealreadyused\\b",
      "another (transaction|tx) (which has|with) (the )?same nonce",
      "\\btx with same nonce already inserted",
      "gas price not enough to bump transaction"
    ]
  },
  {
    "class": "unknown",
    "patterns": [
      "temporarily (not available|banned)",
      "\\btemporarilybanned\\b",
      "failed to publish transaction",
      "sequencer internal error",
      "timed? ?out",
      "timeout expired",
      "deadline exceeded"
    ]
  },
  {
    "class": "refused",
    "later": true,
    "patterns": [
      "(tx ?pool|sub-pool|queue|pool) (is )?full",
      "full, please try again",
      "limit in txpool is full",
      "out of capacity",
      "in-flight transaction limit",
      "account limit exceeded",
      "too many transactions in the queue",
      "spammer",
      "authority has pending transaction",
      "\\bdelegatorhaspendingtx\\b",
      "node is syncing",
      "^syncing\\b",
      "initial sync is still in progress",
      "transaction pool not enabled",
      "expected surplus being below"
    ]
  },
  {
    "class": "refused",
    "patterns": [
      "(address|authority) already reserved",
      "future transaction tries to replace pending",
      "pending transaction type conflict",
      "\\bpendingtxsofconflictingtype\\b"
    ]
  },
  {
    "class": "refused",
    "missing": true,
    "later": true,
    "patterns": [
      "nonce too high",
      "gapped-nonce",
      "\\bnoncegap\\b",
      "nonce gap",
      "\\bnoncetoofarinfuture\\b",
      "nonce (is )?too (far|distant)",
      "\\bnotcurrentnoncefordelegation\\b",
      "invalid transaction with a lower nonce",
      "invalidtransaction::future"
    ]
  },
  {
    "class": "free",
    "patterns": [
      "insufficient (funds|balance)",
      "\\binsufficientfunds\\b",
      "not enough (funds|balance)",
      "invalidtransaction::payment",
      "n.t have enough funds",
      "upfront cost exceeds account balance",
      "overdraws from account",
      "would cause overdraft"
    ]
  },
  {
    "class": "refused",
    "patterns": [
      "underpriced",
      "\\bfeetoolow",
      "fee too low",
      "gas ?price[^a-z]*( is)?,? ?(which is )?(too low|below)",
      "gas price (is )?\\d+, which is below",
      "less than (block base fee|gas price minimum|base fee)",
      "fee ?cap.* below",
      "(blob )?gas price below",
      "is too low for the next block",
      "priority fee (per gas )?(below|higher|exceeds)",
      "invalidmaxpriorityfeepergas",
      "blob_gas_price. is greater",
      "exceeds the configured cap",
      "fee ?cap exceeded"
    ]
  },
  {
    "class": "free",
    "patterns": [
      "intrinsic ?gas",
      "floor data gas",
      "gas uint64 overflow",
      "\\bgasuintoverflow\\b",
      "exceeds (the )?(block|max|maximum)[a-z -]* gas",
      "exceeds (block|transaction) gas",
      "gas limit (is )?too high",
      "gas limit reached",
      "\\bgaslimitexceeded\\b",
      "gas limit (cap )?exceed",
      "txgaslimitcapexceeded",
      "greater than the block gas limit",
      "exceeds current gas limit",
      "gas is too low"
    ]
  },
  {
    "class": "free",
    "patterns": [
      "invalid (sender|signature|transaction signature|transaction type|transaction v, r, s|rlp|message format|chain ?id)",
      "failed to (recover sender|decode)",
      "\\bfailedtoresolvesender\\b",
      "invalidtx(signature|chainid|type)",
      "wrong chainid",
      "chainid (not supported|is required)",
      "signed for another chain",
      "only replay-protected",
      "negative value",
      "\\b(int256|transaction cost) ?overflow\\b",
      "oversized data",
      "rlptoolong",
      "transaction too large",
      "\\bmaxtxsizeexceeded\\b",
      "too big, see chain specification",
      "init ?code (size exceeded|too large)",
      "(tx|transaction) type (\\d+ )?(is )?not supported",
      "(unsupported|unknown) transaction type",
      "\\bnotsupportedtxtype\\b",
      "not activated yet",
      "(sender|caller) (is )?not an eoa",
      "\\bsenderiscontract\\b",
      "set code tx must",
      "authorization ?list",
      "authorization tuple",
      "empty auth",
      "blob(less)? (transaction|hash|tx)",
      "too many blobs",
      "number of blobs exceeded",
      "total blob gas",
      "invalidblob",
      "(missing|wrong|unexpected|no) sidecar",
      "sidecar (format|not found|version|disallowed|before|after)",
      "eip-(4844|7594|7702|1559) ",
      "kzg",
      "blobs? failed",
      "rlp: ",
      "typed transaction too short",
      "empty transaction data",
      "not authorized to send",
      "not on the whitelist",
      "forbidden sender",
      "(sender|recipient|code) is banned",
      "plugin has marked",
      "calldata of transaction is greater than",
      "is blocked as appearing on",
      "^transaction invalid\\b",
      "^invalid($|,)",
      "^invalid (params|block param)"
    ]
  },
  {
    "class": "not_reached",
    "patterns": [
      "publishing transactions not supported",
      "method not (found|enabled|allowed)",
      "does not exist/is not available"
    ]
  },
  {
    "class": "not_reached",
    "later": true,
    "patterns": [
      "too many requests",
      "rate ?limit",
      "rate-limit",
      "request limit",
      "requests? (count )?exceeded",
      "request rate",
      "compute units",
      "throughput",
      "throttl",
      "quota"
    ]
  }
]

/** Of several texts of one refusal, the class that comes first here counts. */
export const caution = [
  "in_pool",
  "used",
  "taken",
  "unknown",
  "refused",
  "not_reached",
  "free"
]
