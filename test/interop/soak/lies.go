package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"noncegate/test/interop/chaintest"
)

// higher has a node answer counts that are too high.
func higher(by uint64) trouble {
	return on(fmt.Sprintf("its counts are %d too high", by), countMethod, chaintest.Falsify("too high", func(result json.RawMessage) json.RawMessage {
		var n hexutil.Uint64
		if json.Unmarshal(result, &n) != nil {
			return result
		}
		return quote(hexutil.EncodeUint64(uint64(n) + by))
	}))
}

func quote(text string) json.RawMessage { return json.RawMessage(`"` + text + `"`) }

// isFinal fits the calls that ask for the final block.
var isFinal = chaintest.If(func(params json.RawMessage) bool { return bytes.Contains(params, []byte(`"finalized"`)) })

func onFinal(name string, fault chaintest.Fault) trouble {
	return trouble{name, func(p *chaintest.Proxy) { p.On("eth_getBlockByNumber", fault, isFinal) }, func(*chaintest.Proxy) {}}
}

// members replaces members of a result that is an object.
func members(name string, with map[string]string) chaintest.Fault {
	return chaintest.Falsify(name, func(result json.RawMessage) json.RawMessage {
		var object map[string]json.RawMessage
		if json.Unmarshal(result, &object) != nil || object == nil {
			return result
		}
		for member, text := range with {
			object[member] = quote(text)
		}
		changed, err := json.Marshal(object)
		if err != nil {
			return result
		}
		return changed
	})
}

func nothing(*chaintest.Proxy) {}

// otherHashes gives the transactions in results of methods the hash of none.
func otherHashes(methods ...string) func(*chaintest.Proxy) {
	fault := chaintest.Falsify("other hashes", func(result json.RawMessage) json.RawMessage {
		var value any
		if json.Unmarshal(result, &value) != nil {
			return result
		}
		renameTransactions(value)
		changed, err := json.Marshal(value)
		if err != nil {
			return result
		}
		return changed
	})
	return func(p *chaintest.Proxy) {
		for _, method := range methods {
			p.On(method, fault)
		}
	}
}

// renameTransactions gives all transactions in a JSON value the hash of none.
func renameTransactions(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			renameTransactions(element)
		}
	case map[string]any:
		if v["from"] != nil && v["hash"] != nil {
			v["hash"] = noHash
			return
		}
		for _, member := range v {
			renameTransactions(member)
		}
	}
}

const (
	countMethod = "eth_getTransactionCount"
	noHash      = "0x00000000000000000000000000000000000000000000000000000000deadbeef"
)

// lies are what one of three nodes says that is not so.
var lies = []trouble{
	higher(1), higher(2), higher(30), higher(1 << 40), higher(1 << 62),
	on("its counts are 0", countMethod, chaintest.Result("0x0")),
	on("it is of another chain", "eth_chainId", chaintest.Result("0x7")),
	onFinal("its final block has another hash", members("another hash", map[string]string{"hash": noHash})),
	onFinal("its final block is far ahead", members("far ahead", map[string]string{"number": "0xffffff", "hash": noHash})),
	onFinal("its final block is the first", members("the first", map[string]string{"number": "0x0"})),
	on("it knows no transaction", "eth_getTransactionByHash", chaintest.Result(nil)),
	{"its transactions have other hashes", otherHashes("eth_getTransactionByHash", "eth_getTransactionBySenderAndNonce", "txpool_contentFrom"), nothing},
	{"its blocks have transactions of other hashes", otherHashes("eth_getBlockByNumber", "eth_getBlockByHash"), nothing},
	on("it knows no receipt", "eth_getTransactionReceipt", chaintest.Result(nil)),
	on("it takes transactions and forgets them", send, chaintest.Result(noHash)),
	on("it refuses transactions for good", send, chaintest.RPCError(-32000, "insufficient funds for gas * price + value")),
	on("it says that nonces are used", send, chaintest.RPCError(-32000, "nonce too low")),
}

// lie has one of three nodes tell one lie after the other, and be well in between, until it is calm.
func (s *soak) lie(p *chaintest.Proxy) {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 150))
	lies := slices.DeleteFunc(slices.Clone(lies), func(t trouble) bool { return !strings.Contains(t.name, s.cfg.Lie) })
	if len(lies) == 0 {
		s.Fatalf("no lie has %q in its name", s.cfg.Lie)
	}
	for s.chain.height() <= maxLag {
		if !sleep(s.chaos, s.cfg.BlockTime) {
			return
		}
	}
	for sleep(s.chaos, between(r, 500*time.Millisecond, 3*time.Second)) {
		t := lies[r.IntN(len(lies))]
		s.counts.faults.Add(1)
		s.detail("the node that lies: %s", t.name)
		t.begin(p)
		sleep(s.chaos, between(r, 2*time.Second, 8*time.Second))
		p.Clear()
		t.end(p)
	}
}
