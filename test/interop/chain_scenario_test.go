package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
	"noncegate/wire"
)

// The scenarios of testdata/chain are what happens between a wallet, the gateway and a chain, a line a step. A line "STEP -> RESULT" runs
// the step once; "await STEP -> RESULT" runs it until it has that result. # begins a comment.
//
// At the gateway, for account 0 unless as=N is said:
//
//	allocate [first] [hold=MS]     nonce#attempt, with what it is reissued after, or the reason of the refusal
//	used N#A [TX]                  the status, or the reason
//	signed N#A TX
//	release N#A [unsent]
//	extend N#A hold=MS
//	repair                         nonce#attempt was STATUS, and the recorded transactions
//	status                         next and mined, and claimed N and gap N where there is one
//	list                           nonce#attempt=STATUS/TX/chain …
//	events TYPE                    the nonces of the events of that type so far
//
// At the chain, which is go-ethereum's:
//
//	sign TX N [bump=%] [cancel]    makes a transaction with a name
//	give TX                        to the node itself: ok, or the beginning of the refusal
//	where TX                       pending, mined, …
//	mining                         from now on a block comes every half second
//	block [N]; empty [N]; reorg DEPTH keep|lose; drop TX; finalize
//	authorize N                    account 1 sends an EIP-7702 authorization of account 0's nonce N
//	fault METHOD KIND; refuse; accept; clear; lag N; catchup     of the first node
//	pretend TX; swap TX OTHER      the first node has TX in its pool; its blocks show OTHER instead of TX
//	lied N                         waits until the last of these lies was told N times
type scenario struct {
	chained
	t      *testing.T
	client *rpc.Client
	txs    map[string]*types.Transaction
	events chan json.RawMessage
	seen   map[string][]string
	lie    *chaintest.Rule
	faulty bool // the node may not answer
}

// scenarioTime bounds the wait for what must come.
const scenarioTime = 60 * time.Second

// eventually looks until it sees what must come, by the gateway's own clock or a chain's, and reports whether it did.
func eventually(look func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(scenarioTime); !look(); <-tick.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func TestScenariosOfAChain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/chain/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			newScenario(t).run(string(get(os.ReadFile(file))(t)))
		})
	}
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t, txs: make(map[string]*types.Transaction), seen: make(map[string][]string)}
	s.sim = chaintest.StartSim(t, chaintest.SimConfig{Accounts: 3})
	s.proxy = chaintest.StartProxy(t, s.sim)
	return s
}

func (s *scenario) run(text string) {
	steps := 0
	for i, line := range strings.Split(text, "\n") {
		if line, _, _ = strings.Cut(line, "#  "); strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		steps++
		s.line(i+1, strings.TrimSpace(line))
		if s.t.Failed() {
			s.t.FailNow()
		}
	}
	if steps == 0 {
		s.t.Error("the scenario has no step")
	}
}

func (s *scenario) line(number int, line string) {
	step, want, checked := strings.Cut(line, " -> ")
	step, want = strings.TrimSpace(step), strings.TrimSpace(want)
	awaited, await := strings.CutPrefix(step, "await ")
	if await {
		step = awaited
	}
	words := strings.Fields(step)
	got := s.do(words)
	if await && got != want {
		eventually(func() bool {
			got = s.do(words)
			return got == want
		})
	}
	if checked && got != want {
		s.t.Errorf("line %d: %s\n got  %s\n want %s", number, step, got, want)
	}
}

func (s *scenario) do(words []string) string {
	if words[0] == "gateway" {
		s.begin(words[1:])
		return ""
	}
	if r, ok := s.atChain(words); ok {
		return r
	}
	if s.gateway == nil {
		s.begin(nil)
	}
	return s.atGateway(words)
}

// begin starts the gateway, with quick settings, and what the scenario wants.
func (s *scenario) begin(settings []string) {
	nodes := s.proxy.WS()
	flags := []string{"--chain-gap-after=1s", "--unknown-ttl=1m", "--sweep-interval=100ms"}
	for _, f := range settings {
		if f == "two" { // a second node that nothing happens to
			nodes += "," + s.sim.URL()
		} else {
			flags = append(flags, f)
		}
	}
	s.gateway = start(s.t, append(chainFlags(nodes, s.sim), flags...)...)
	// A block from before the first that it sees shows no transactions.
	if !s.faulty && !eventually(func() bool { return strings.Contains(s.Log(), "node of the chain answers") }) {
		s.t.Fatal("the gateway does not ask its node")
	}
	s.client = s.dial()
	s.events = make(chan json.RawMessage, 1000)
	get(s.client.Subscribe(s.t.Context(), "nonce", s.events, "events"))(s.t)
}

func (s *scenario) account(words []string) chaintest.Account {
	return s.sim.Accounts[number(option(words, "as", "0"))]
}

func option(words []string, name, absent string) string {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
	}
	return absent
}

func has(words []string, word string) bool { return slices.Contains(words[1:], word) }

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("scenario: " + err.Error())
	}
	return n
}

// answer is any answer of the gateway.
type answer struct {
	Nonce, Attempt, Next int64
	Status, TxHash       string
	TxHashes             []string
	Was                  struct{ Status string }
	Reissued             *wire.Reissued
	Chain                struct {
		Mined, Claimed int64
		Gap            *struct{ Nonce int64 }
	}
	Allocations []struct {
		Nonce, Attempt        int64
		Status, TxHash, Chain string
		TxHashes              []string
	}
}

func (s *scenario) atGateway(words []string) string {
	params := object{"signer": s.signerOf(s.account(words))}
	for _, w := range words[1:] {
		var n, a int
		if k, _ := fmt.Sscanf(w, "%d#%d", &n, &a); k == 2 {
			params["nonce"], params["attempt"] = n, a
		} else if tx, ok := s.txs[w]; ok {
			params["txHash"] = tx.Hash().Hex()
		}
	}
	if hold := option(words, "hold", ""); hold != "" {
		params["holdMs"] = number(hold)
	}
	for word, param := range map[string]string{"first": "recordFirst", "unsent": "unsent"} {
		if has(words, word) {
			params[param] = true
		}
	}
	method := map[string]string{
		"allocate": "nonce_allocate", "used": "nonce_markUsed", "signed": "nonce_markSigned", "release": "nonce_markRecyclable",
		"extend": "nonce_extend", "repair": "nonce_repair", "status": "nonce_status", "list": "nonce_list",
	}[words[0]]
	if words[0] == "events" {
		return s.heard(words[1])
	}
	if method == "" {
		s.t.Fatalf("what is %q?", words)
	}
	var a answer
	if err := s.client.CallContext(s.t.Context(), &a, method, params); err != nil {
		return reason(err)
	}
	return s.told(words[0], &a)
}

// reason is the stable word of a refusal, with the cause where there is one.
func reason(err error) string {
	e, ok := errors.AsType[rpc.DataError](err)
	if !ok {
		return err.Error()
	}
	data, _ := e.ErrorData().(object)
	word := fmt.Sprint(data["reason"])
	for _, more := range []string{"cause", "outcome", "status"} {
		if v, ok := data[more]; ok {
			word += " " + fmt.Sprint(v)
		}
	}
	return word
}

func (s *scenario) told(what string, a *answer) string {
	switch what {
	case "allocate":
		r := fmt.Sprintf("%d#%d", a.Nonce, a.Attempt)
		if a.Reissued != nil {
			r += fmt.Sprintf(" %s #%d", a.Reissued.Reason, a.Reissued.Attempt)
		}
		return r
	case "repair":
		r := fmt.Sprintf("%d#%d was %s", a.Nonce, a.Attempt, a.Was.Status)
		for _, h := range a.TxHashes {
			r += " " + s.name(h)
		}
		return r
	case "status":
		r := fmt.Sprintf("next %d mined %d", a.Next, a.Chain.Mined)
		if a.Chain.Claimed != 0 {
			r += fmt.Sprintf(" claimed %d", a.Chain.Claimed)
		}
		if a.Chain.Gap != nil {
			r += fmt.Sprintf(" gap %d", a.Chain.Gap.Nonce)
		}
		return r
	case "list":
		var rows []string
		for _, row := range a.Allocations {
			r := fmt.Sprintf("%d#%d=%s", row.Nonce, row.Attempt, row.Status)
			for _, more := range []string{s.name(row.TxHash), row.Chain} {
				if more != "" {
					r += "/" + more
				}
			}
			rows = append(rows, r)
		}
		return strings.Join(rows, " ")
	}
	return a.Status
}

func (s *scenario) name(hash string) string {
	for name, tx := range s.txs {
		if strings.EqualFold(tx.Hash().Hex(), hash) {
			return name
		}
	}
	return hash
}

// heard is the nonces of the events of a type, in order.
func (s *scenario) heard(typ string) string {
	for {
		select {
		case raw := <-s.events:
			var e struct {
				Type  string
				Nonce int64
			}
			if err := json.Unmarshal(raw, &e); err != nil {
				s.t.Fatal(err)
			}
			s.seen[e.Type] = append(s.seen[e.Type], fmt.Sprint(e.Nonce))
		default:
			return strings.Join(s.seen[typ], " ")
		}
	}
}

// faults are the words of fault.
var faults = map[string]chaintest.Fault{
	"notjson": chaintest.NotJSON, "endless": chaintest.Big(math.MaxInt64), "big": chaintest.Big(100 << 20), "null": chaintest.Result(nil),
	"busy": chaintest.Status(http.StatusTooManyRequests), "chain9": chaintest.Result("0x9"),
	"redirect": chaintest.Page(http.StatusFound, http.Header{"Location": {"http://127.0.0.1:9/"}}, ""),
}

func (s *scenario) atChain(words []string) (result string, ok bool) {
	count := 1
	if len(words) > 1 {
		if n, err := strconv.Atoi(words[1]); err == nil {
			count = n
		}
	}
	switch words[0] {
	case "sign":
		p := chaintest.Payment{Nonce: uint64(number(words[2])), To: s.sim.Accounts[2].Address, Bump: number(option(words, "bump", "0"))}
		if has(words, "cancel") {
			p.To, p.Value = s.account(words).Address, new(big.Int)
		}
		s.txs[words[1]] = s.sim.Sign(s.account(words), p)
	case "give":
		if err := s.sim.Send(s.txs[words[1]]); err != nil {
			text, _, _ := strings.Cut(err.Error(), ":")
			return text, true
		}
		return "ok", true
	case "where":
		return s.sim.Where(s.txs[words[1]].Hash()), true
	case "block":
		for range count {
			s.sim.Commit()
		}
	case "mining":
		every(s.t, 500*time.Millisecond, s.sim.Commit)
	case "empty":
		for range count {
			s.sim.CommitEmpty()
		}
	case "reorg":
		s.sim.Reorg(count, words[2] == "keep")
	case "drop":
		s.sim.Drop(s.txs[words[1]].Hash())
	case "finalize":
		n, _ := s.sim.Head()
		s.sim.Finalize(n)
	case "authorize":
		auth := s.sim.Authorize(s.sim.Accounts[0], s.sim.Accounts[2].Address, uint64(count))
		s.txs["auth"] = s.sim.SignDelegations(s.sim.Accounts[1], chaintest.Payment{Nonce: s.sim.PendingNonce(s.sim.Accounts[1].Address), To: s.sim.Accounts[2].Address}, auth)
		if err := s.sim.Send(s.txs["auth"]); err != nil {
			return err.Error(), true
		}
	case "fault":
		f, known := faults[words[2]]
		if !known {
			s.t.Fatalf("what is fault %q?", words[2])
		}
		s.proxy.On(words[1], f)
		s.faulty = true
	case "pretend":
		tx := s.txs[words[1]]
		s.lie = s.proxy.On("txpool_contentFrom", chaintest.Result(map[string]any{"pending": map[string]any{
			fmt.Sprint(tx.Nonce()): map[string]any{
				"hash": tx.Hash(), "from": s.account(words).Address, "nonce": hexutil.Uint64(tx.Nonce()), "type": hexutil.Uint64(tx.Type()),
			},
		}}))
	case "swap":
		is, other := []byte(s.txs[words[1]].Hash().Hex()), []byte(s.txs[words[2]].Hash().Hex())
		s.lie = s.proxy.On("eth_getBlockByNumber", chaintest.Falsify(func(result json.RawMessage) any {
			return json.RawMessage(bytes.ReplaceAll(result, is, other))
		}))
	case "lied":
		s.lie.Await(count)
	case "clear":
		s.proxy.Clear()
		s.faulty = false
	case "refuse":
		s.proxy.Refuse()
		s.faulty = true
	case "accept":
		s.proxy.Accept()
		s.faulty = false
	case "lag":
		s.proxy.Lag(uint64(count))
	case "catchup":
		s.proxy.CatchUp()
	default:
		return "", false
	}
	return "", true
}
