package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
)

type rpcError = ethereum.RPCError

// chainID is that of all tests.
const chainID = "eip155:1"

// fakeNodes are the nodes of a chain: what they say is the test's. They are a chain.Chain
// too, so that the gateway's own tracker follows them.
type fakeNodes struct {
	t testing.TB

	mu      sync.Mutex
	starts  map[string]chain.Start
	begun   int // how often they were asked for one
	away    bool
	send    func(tx chain.Tx) chain.Verdict // nil: they take it
	sent    []chain.Tx                      // in the order in which they were given
	answers map[string]func(params string) (string, *rpcError, error)
	asked   []string
	mined   map[int64]chain.Hash // what a look-up of a nonce finds
	alone   bool                 // one of several nodes alone shows it
	subs    []*upstream
	refuse  *rpcError // of subscriptions
	opening func()    // called at each subscription; nil: nothing

	heads chan heardHead
}

// heardHead is a head, and who waits until it was heard.
type heardHead struct {
	head  chain.Head
	heard chan struct{}
}

// upstream is a subscription at the nodes.
type upstream struct {
	params json.RawMessage // which the nodes' client keeps, too
	on     func(json.RawMessage)
	ended  func(error)
	left   chan struct{}
}

var _ Nodes = (*fakeNodes)(nil)

func newNodes(t testing.TB) *fakeNodes {
	return &fakeNodes{
		t: t, starts: map[string]chain.Start{}, mined: map[int64]chain.Hash{},
		answers: map[string]func(string) (string, *rpcError, error){},
		heads:   make(chan heardHead),
	}
}

// account is one of the tests' own: its transactions are made by transaction.
func account(n int) string { return fmt.Sprintf("0x%040x", n) }

// signer is the name of an account's signer.
func signer(account string) string { return chainID + ":" + account }

// ours is the first byte of the transactions of tests, which is no type of Ethereum's.
const ours = 0x7e

type fakeTx struct {
	Account string
	Nonce   int64
	Pays    string
}

// transaction is a raw transaction: transactions that pay something else have another
// hash. What stands before a comma is what it does; "cancel" is a cancellation.
func transaction(account string, n int64, pays string) string {
	body, _ := json.Marshal(fakeTx{account, n, pays})
	return fmt.Sprintf("0x%02x%x", ours, body)
}

// hashOf is the hash of a transaction.
func hashOf(raw string) chain.Hash {
	var bytes []byte
	if _, err := fmt.Sscanf(raw, "0x%x", &bytes); err != nil {
		panic(err)
	}
	return address.Keccak256(bytes)
}

func (f *fakeNodes) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (*fakeNodes) Several() bool { return true }

func (f *fakeNodes) ID() string { return chainID }

func (f *fakeNodes) Run(ctx context.Context, on func(chain.Head)) {
	on(chain.Head{Latest: chain.Block{Number: 1, Hash: chain.Hash{1}}})
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-f.heads:
			on(h.head)
			close(h.heard)
		}
	}
}

// finalFalls has the chain say that its final block fell.
func (f *fakeNodes) finalFalls() {
	f.tell(chain.Head{Latest: chain.Block{Number: 2, Hash: chain.Hash{2}}, FinalFell: true})
}

// newHead has the chain tell of a block.
func (f *fakeNodes) newHead(number int64, uses ...chain.Use) {
	f.tell(chain.Head{Latest: chain.Block{Number: number, Hash: chain.Hash{byte(number)}}, Uses: uses, Skipped: true})
}

// tell tells of a head, and waits until that was heard.
func (f *fakeNodes) tell(head chain.Head) {
	h := heardHead{head, make(chan struct{})}
	f.heads <- h
	<-h.heard
}

func (f *fakeNodes) Counts(_ context.Context, _ chain.Block, accounts []string) ([]chain.Count, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make([]chain.Count, len(accounts))
	for i, a := range accounts {
		counts[i] = chain.Count{Used: f.starts[a].Latest, Nodes: 2}
	}
	return counts, nil
}

func (f *fakeNodes) Start(_ context.Context, accounts []string) ([]chain.Start, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
	if f.away {
		return nil, chain.ErrUnreachable
	}
	starts := make([]chain.Start, len(accounts))
	for i, a := range accounts {
		starts[i] = f.starts[a]
	}
	return starts, nil
}

func (f *fakeNodes) Lookup(_ context.Context, asks []chain.Ask) ([]chain.Sighting, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := make([]chain.Sighting, len(asks))
	for i, a := range asks {
		found[i].Nodes = 1
		if tx, ok := f.mined[a.Nonce]; ok {
			found[i].Seen, found[i].Tx = chain.Mined, tx
			if !f.alone {
				found[i].Settled, found[i].SettledTx = chain.Mined, tx
			}
		}
	}
	return found, nil
}

func (f *fakeNodes) Decode(raw []byte) (chain.Tx, error) {
	if len(raw) > 0 && raw[0] == ours {
		var tx fakeTx
		if err := json.Unmarshal(raw[1:], &tx); err != nil {
			return chain.Tx{}, err
		}
		does, _, _ := strings.Cut(tx.Pays, ",")
		payment := address.Keccak256([]byte(does))
		return chain.Tx{
			Account: tx.Account, Nonce: tx.Nonce, Hash: address.Keccak256(raw), Payment: [16]byte(payment[:16]), Cancels: does == "cancel",
		}, nil
	}
	tx, err := rawtx.Decode(raw)
	if err != nil {
		return chain.Tx{}, err
	}
	if tx.HasChainID && tx.ChainID != 1 {
		return chain.Tx{}, &ethereum.OtherChainError{Want: 1, Is: tx.ChainID}
	}
	return chain.Tx{Account: tx.From.String(), Nonce: int64(tx.Nonce), Hash: tx.Hash}, nil
}

func (f *fakeNodes) Send(ctx context.Context, raw []byte) chain.Verdict {
	tx, err := f.Decode(raw)
	if err != nil {
		f.t.Errorf("the nodes were given %x: %v", raw, err)
	}
	f.mu.Lock()
	f.sent = append(f.sent, tx)
	say := f.send
	f.mu.Unlock()
	if say == nil {
		return chain.Verdict{Class: chain.InPool}
	}
	v := say(tx)
	if ctx.Err() != nil { // who stops waiting knows nothing
		return chain.Verdict{Class: chain.Unknown, Code: -32603, Message: ctx.Err().Error()}
	}
	return v
}

// says makes the nodes answer each send so.
func (f *fakeNodes) says(v chain.Verdict) { f.saysBy(func(chain.Tx) chain.Verdict { return v }) }

func (f *fakeNodes) saysBy(say func(chain.Tx) chain.Verdict) { f.locked(func() { f.send = say }) }

// given are the nonces of the transactions that the nodes were given.
func (f *fakeNodes) given() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	nonces := []int64{}
	for _, tx := range f.sent {
		nonces = append(nonces, tx.Nonce)
	}
	return nonces
}

// wantGiven fails unless the nodes were given transactions with these nonces, in any order:
// those that are recorded are given to the nodes side by side.
func (f *fakeNodes) wantGiven(nonces ...int64) {
	f.t.Helper()
	if got := slices.Sorted(slices.Values(f.given())); !slices.Equal(got, nonces) {
		f.t.Errorf("the nodes were given transactions with the nonces %v, want %v", got, nonces)
	}
}

// at says how far an account is.
func (f *fakeNodes) at(account string, st chain.Start) { f.locked(func() { f.starts[account] = st }) }

// goAway makes the nodes unreachable.
func (f *fakeNodes) goAway() { f.locked(func() { f.away = true }) }

func (f *fakeNodes) answer(method string, say func(params string) (string, *rpcError, error)) {
	f.locked(func() { f.answers[method] = say })
}

func (f *fakeNodes) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *rpcError, error) {
	f.mu.Lock()
	f.asked = append(f.asked, method+string(params))
	say := f.answers[method]
	f.mu.Unlock()
	if say == nil {
		return json.RawMessage(`"` + method + `"`), nil, nil
	}
	result, refusal, err := say(string(params))
	if err != nil && errors.Is(err, errWait) {
		<-ctx.Done()
		return nil, nil, context.Cause(ctx)
	}
	return json.RawMessage(result), refusal, err
}

// errWait makes a question wait until nobody wants its answer.
var errWait = errors.New("wait")

func (f *fakeNodes) Subscribe(_ context.Context, params json.RawMessage, on func(json.RawMessage), ended func(error)) (
	func(), *rpcError, error,
) {
	f.mu.Lock()
	opening := f.opening
	f.mu.Unlock()
	if opening != nil {
		opening()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, nil, chain.ErrUnreachable
	}
	if f.refuse != nil {
		return nil, f.refuse, nil
	}
	u := &upstream{params: params, on: on, ended: ended, left: make(chan struct{})}
	f.subs = append(f.subs, u)
	if bytes.Contains(params, []byte("early")) {
		on(json.RawMessage(`"early"`))
	}
	return sync.OnceFunc(func() { close(u.left) }), nil, nil
}

// upstreamOf is the last subscription with such params.
func (f *fakeNodes) upstreamOf(params string) *upstream {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range slices.Backward(f.subs) {
		if string(u.params) == params {
			return u
		}
	}
	f.t.Fatalf("nobody subscribed to %s", params)
	return nil
}

func (f *fakeNodes) askedFor(method string) (n int) {
	f.locked(func() {
		for _, a := range f.asked {
			if strings.HasPrefix(a, method+"[") {
				n++
			}
		}
	})
	return n
}

// askedToBegin is how often the nodes were asked where an account begins.
func (f *fakeNodes) askedToBegin() (n int) {
	f.locked(func() { n = f.begun })
	return n
}
