//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/internal/testenv/fakenode"
	"noncegate/wire"
)

// ethereumNode is a node of the chain eip155:1 that gateways reach by its address.
type ethereumNode struct {
	*fakenode.Server
	chain *fakenode.Chain
}

func startEthereumNode(t *testing.T) *ethereumNode {
	t.Helper()
	c := fakenode.NewChain(time.Now().Add(-time.Hour), 100*time.Millisecond)
	server, err := fakenode.Serve(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &ethereumNode{server, c}
	n.SetFinal(n.Head())
	return n
}

// mine makes a block with the transactions.
func (n *ethereumNode) mine(txs ...fakenode.Tx) { n.SetHead(n.chain.Extend(n.Head(), txs...)) }

// flag is the setting that has a gateway ask the node.
func (n *ethereumNode) flag() string { return "--chain=eip155:1=" + n.URL() }

// sent are transactions of an account with nonces from and below to.
func sent(number int, from, to int64) (txs []fakenode.Tx) {
	for i := from; i < to; i++ {
		txs = append(txs, fakenode.Tx{From: fakenode.Account(number), Nonce: i, Hash: fakenode.TxHash(1000*number + int(i))})
	}
	return txs
}

// signerOf is the name of an account of the chain.
func signerOf(number int) string { return "eip155:1:" + fakenode.Account(number) }

func sqliteStore(t *testing.T) string {
	t.Helper()
	return "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
}

// listed is what signer list says.
func (p *process) listed(args ...string) (list signerList) {
	p.Helper()
	o := runArgs(p.TB.(*testing.T), append([]string{"signer", "list", "--json", "--admin", p.admin}, args...)...)
	if o.code != exitOK {
		p.Fatalf("signer list %q: exit %d, stderr %s", args, o.code, o.stderr)
	}
	if err := json.Unmarshal([]byte(o.stdout), &list); err != nil {
		p.Fatal(err)
	}
	return list
}

// names are the signers of a list.
func (l *signerList) names() (names []string) {
	for _, s := range l.Signers {
		names = append(names, s.Signer)
	}
	return names
}

// signer runs a command about a signer and returns what it says.
func (p *process) signer(code int, args ...string) string {
	p.Helper()
	o := runArgs(p.TB.(*testing.T), append(append([]string{"signer"}, args...), "--url", p.url)...)
	if o.code != code {
		p.Fatalf("signer %q: exit %d, want %d: %s%s", args, o.code, code, o.stdout, o.stderr)
	}
	return o.stdout + o.stderr
}

// gives has a nonce given back that is held.
func (c *peer) gives(back wire.AllocateResult, reason string) {
	c.Helper()
	c.want("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"reason":%q}`, back.Signer, back.Nonce, back.Attempt, reason))
}

const someHash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"

func TestAGapOfReleasedNoncesIsListedAndEndedByHand(t *testing.T) {
	t.Parallel()
	p := launch(t, sqliteStore(t))
	c := p.connect()
	var held []wire.AllocateResult
	for range 4 {
		held = append(held, c.allocate("treasury", ""))
	}
	c.allocate("payouts", "")
	c.gives(held[0], "gas too low")
	c.gives(held[1], "gas too low")
	c.want("ok", wire.MethodMarkUsed, `{"signer":"treasury","nonce":3,"txHash":"`+someHash+`"}`)

	gap := p.listed("--filter=gap")
	if len(gap.Signers) != 1 {
		t.Fatalf("listed %+v", gap.Signers)
	}
	if s := gap.Signers[0]; s.Signer != "treasury" || s.Next != 4 || s.Held != 1 || s.Released != 2 || s.LowestReleased == nil || *s.LowestReleased != 0 ||
		s.MaxAttempt != 1 || s.OldestHold.IsZero() || s.Owner == "" || s.Mined != nil || s.Gap != nil || s.Stopped {
		t.Errorf("listed %+v", s)
	}
	if said := p.signer(exitFailure, "release", "treasury", "2", "--attempt=2"); !strings.Contains(said, `"reason":"conflict"`) {
		t.Errorf("another attempt: said %s", said)
	}
	for args, want := range map[string]string{
		"release treasury 2 --reason=lost":         "treasury: nonce 2, attempt 1, is RELEASED\n",
		"consume treasury 0 --tx-hash=" + someHash: "treasury: nonce 0, attempt 1, is CONSUMED\n",
		"consume treasury 1":                       "treasury: nonce 1, attempt 1, is CONSUMED\n",
		"floor payouts 7":                          "payouts: floor 7, next 7\n",
	} {
		if said := p.signer(exitOK, strings.Fields(args)...); said != want {
			t.Errorf("%s: said %s", args, said)
		}
	}
	if s := p.listed("--filter=gap").Signers; len(s) != 1 || s[0].Released != 1 || *s[0].LowestReleased != 2 {
		t.Errorf("with nonce 2 released: listed %+v", s)
	}
	if said := p.signer(exitOK, "consume", "treasury", "2"); said != "treasury: nonce 2, attempt 1, is CONSUMED\n" {
		t.Errorf("said %s", said)
	}
	if s := p.listed("--filter=gap").Signers; len(s) != 0 {
		t.Errorf("at the end: listed %+v", s)
	}
	if got := c.allocate("treasury", ""); got.Nonce != 4 {
		t.Errorf("the next nonce of treasury is %d", got.Nonce)
	}
	if got := c.allocate("payouts", ""); got.Nonce != 7 {
		t.Errorf("the next nonce of payouts is %d", got.Nonce)
	}
}

func TestSignersAreListedByWhatStandsOutAPageAtATime(t *testing.T) {
	t.Parallel()
	p := launch(t, sqliteStore(t))
	c := p.connect()
	for _, signer := range []string{"d", "b", "a", "c"} {
		c.allocate(signer, "")
	}
	for range 2 {
		c.gives(c.allocate("again", ""), "not sent")
	}
	c.allocate("again", "")
	if got := p.listed("--filter=repeated"); !slices.Equal(got.names(), []string{"again"}) || got.Signers[0].MaxAttempt != 3 {
		t.Errorf("repeated: %+v", got.Signers)
	}
	for _, filter := range []string{"unknown", "stopped", "gap"} {
		if got := p.listed("--filter=" + filter); len(got.Signers) != 0 {
			t.Errorf("%s: %+v", filter, got.Signers)
		}
	}
	first := p.listed("--limit=3")
	if want := []string{"a", "again", "b"}; !slices.Equal(first.names(), want) || first.Next != "b" {
		t.Errorf("the first page is %q, next %q; want %q", first.names(), first.Next, want)
	}
	if rest := p.listed("--limit=3", "--after="+first.Next); !slices.Equal(rest.names(), []string{"c", "d"}) || rest.Next != "" {
		t.Errorf("the last page is %q, next %q", rest.names(), rest.Next)
	}
	if code, body := p.get("/signers?filter=gaps"); code != http.StatusBadRequest || !strings.Contains(body, "filter: ") {
		t.Errorf("a filter that does not exist: %d %s", code, body)
	}
}

func TestTheMetricsSayWhatIsOpenInTheWholeStore(t *testing.T) {
	t.Parallel()
	store := sqliteStore(t)
	first := launch(t, store)
	c := first.connect()
	for range 2 {
		c.gives(c.allocate("again", ""), "not sent")
	}
	c.allocate("again", "")
	c.allocate("s", "")
	c.gives(c.allocate("s", ""), "not sent")
	_ = c.ws.Close()
	_ = first.cmd.Process.Kill()
	first.exit()

	second := launch(t, store) // counts at its start, and every 15 s
	for _, line := range []string{"noncegate_open_holds 2", "noncegate_unknown_holds 0", "noncegate_released_nonces 1", "noncegate_repeated_nonces 1", "noncegate_oldest_overdue_hold_seconds 0"} {
		second.await(line, func() bool { return second.metric(line) })
	}
}

func TestANewSignerBeginsWhereItsAccountStandsWithWhatIsInThePool(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	node.mine(sent(1, 0, 5)...)
	node.SetPool(sent(1, 5, 7)...)
	p := launch(t, sqliteStore(t), node.flag(), "--chain-poll=20ms")
	c := p.connect()
	if got := c.allocate(signerOf(1), ""); got.Nonce != 7 || got.Attempt != 1 {
		t.Errorf("got nonce %d, attempt %d; want 7, 1", got.Nonce, got.Attempt)
	}
	if got := c.allocate(signerOf(2), ""); got.Nonce != 0 {
		t.Errorf("an account that was never used: got nonce %d", got.Nonce)
	}
	if got := c.allocate("eip155:10:"+fakenode.Account(1), ""); got.Nonce != 0 {
		t.Errorf("a signer of another chain: got nonce %d", got.Nonce)
	}
	if said := p.signer(exitOK, "show", signerOf(1)); !strings.Contains(said, "mined   5") || !strings.Contains(said, "at block  1") {
		t.Errorf("signer show says\n%s", said)
	}
	if s := p.listed().Signers; len(s) != 3 || s[1].Signer != signerOf(1) || s[1].Mined == nil || *s[1].Mined != 5 || s[2].Mined == nil || s[0].Mined != nil {
		t.Errorf("listed %+v", s)
	}
	node.SetPool()
	node.mine(sent(1, 5, 8)...)
	p.await("the count of the next block", func() bool {
		status := decode[wire.StatusResult](t, c.want("ok", wire.MethodStatus, fmt.Sprintf(`{"signer":%q}`, signerOf(1))))
		return status.Chain != nil && status.Chain.Mined == 8 && status.Chain.Head == 2
	})
	for _, line := range []string{`noncegate_chain_head_number{chain="eip155:1"} 2`, `noncegate_chain_node_up{chain="eip155:1",node="127.0.0.1"} 1`, `noncegate_chain_stopped{chain="eip155:1"} 0`} {
		if !p.metric(line) {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}

func TestWithoutANodeNewSignersAreUnavailableAndKnownOnesGoOn(t *testing.T) {
	t.Parallel()
	node, store := startEthereumNode(t), sqliteStore(t)
	node.mine(sent(1, 0, 3)...)
	p := launch(t, store, node.flag(), "--node-id=n")
	if got := p.connect().allocate(signerOf(1), ""); got.Nonce != 3 {
		t.Fatalf("got nonce %d", got.Nonce)
	}
	_ = p.cmd.Process.Kill()
	p.exit()

	node.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	const wait = 300 * time.Millisecond
	p = launch(t, store, node.flag(), "--node-id=n", "--chain-wait="+wait.String(), "--chain-poll=20ms")
	c := p.connect()
	if got := c.allocate(signerOf(1), ""); got.Nonce != 4 {
		t.Errorf("a signer that was used before: got nonce %d", got.Nonce)
	}
	began := time.Now()
	c.want("unavailable none", wire.MethodAllocate, allocation(signerOf(2), "payout-1"))
	if took := time.Since(began); took < wait || took > patience/2 {
		t.Errorf("it was told after %v, want %v and little more", took, wait)
	}
	if got := c.allocate("treasury", ""); got.Nonce != 0 {
		t.Errorf("a signer of no chain: got nonce %d", got.Nonce)
	}
	if line := `noncegate_chain_node_up{chain="eip155:1",node="127.0.0.1"} 0`; !p.metric(line) {
		t.Errorf("/metrics has no line %s", line)
	}
	node.OnHTTP(nil)
	node.mine(sent(2, 0, 6)...)
	p.await("a node that answers again", func() bool { return c.call(wire.MethodAllocate, allocation(signerOf(2), "payout-1")).reason() == "ok" })
	if again := decode[wire.AllocateResult](t, c.want("ok", wire.MethodAllocate, allocation(signerOf(2), "payout-1"))); again.Nonce != 6 {
		t.Errorf("once the node answers: got nonce %d", again.Nonce)
	}
}

func TestAHoldOfWhichNobodyKnowsIsShownAsUnknownAndEndedByHand(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	p := launch(t, sqliteStore(t), node.flag(), "--chain-poll=20ms", "--hold-ttl=1s", "--sweep-interval=10ms")
	c := p.connect()
	for nonce := range 2 {
		if got := c.allocate(signerOf(1), ""); got.Nonce != int64(nonce) {
			t.Fatalf("got nonce %d, want %d", got.Nonce, nonce)
		}
	}
	p.await("both holds to be unknown", func() bool {
		s := p.listed("--filter=unknown").Signers
		return len(s) == 1 && s[0].Unknown == 2
	})
	if said := p.signer(exitOK, "show", signerOf(1)); strings.Count(said, "UNKNOWN") != 4 || !strings.Contains(said, "unknown   2") {
		t.Errorf("signer show says\n%s", said)
	}
	p.await("the chain's own metric", func() bool { return p.metric(`noncegate_chain_unknown_holds{chain="eip155:1"} 2`) })
	if got := c.allocate(signerOf(1), ""); got.Nonce != 2 {
		t.Errorf("beside unknown holds: got nonce %d", got.Nonce)
	}
	if said := p.signer(exitOK, "consume", signerOf(1), "1", "--tx-hash="+someHash); !strings.HasSuffix(said, "nonce 1, attempt 1, is CONSUMED\n") {
		t.Errorf("said %s", said)
	}
	if said := p.signer(exitOK, "release", signerOf(1), "0"); !strings.HasSuffix(said, "nonce 0, attempt 1, is RELEASED\n") {
		t.Errorf("said %s", said)
	}
	if got := c.allocate(signerOf(1), ""); got.Nonce != 0 || got.Attempt != 2 {
		t.Errorf("after its release: got nonce %d, attempt %d", got.Nonce, got.Attempt)
	}
}

func TestWhatBlocksASignerOnItsChainIsListedAsAGapUntilItIsMined(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	p := launch(t, sqliteStore(t), node.flag(), "--chain-poll=20ms", "--chain-gap-after=1s", "--hold-ttl=10m")
	c := p.connect()
	for range 2 {
		c.allocate(signerOf(1), "")
	}
	c.want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":1,"txHash":%q}`, signerOf(1), someHash))
	c.allocate(signerOf(2), "")
	p.await("the gap", func() bool { return len(p.listed("--filter=gap").Signers) > 0 })
	s := p.listed("--filter=gap").Signers
	if len(s) != 1 || s[0].Signer != signerOf(1) || s[0].Gap == nil || *s[0].Gap != 0 || s[0].Released != 0 {
		t.Errorf("listed %+v", s)
	}
	if said := p.signer(exitOK, "show", signerOf(1)); !strings.Contains(said, "gap     nonce 0") {
		t.Errorf("signer show says\n%s", said)
	}
	if !p.metric(`noncegate_chain_gaps{chain="eip155:1"} 1`) || !p.metric(`noncegate_chain_events_total{chain="eip155:1",type="gap"} 1`) {
		t.Error("/metrics does not tell of the gap")
	}
	node.mine(sent(1, 0, 1)...)
	p.await("the end of the gap", func() bool { return len(p.listed("--filter=gap").Signers) == 0 })
	p.await("its event", func() bool { return p.metric(`noncegate_chain_events_total{chain="eip155:1",type="gapClosed"} 1`) })
}
