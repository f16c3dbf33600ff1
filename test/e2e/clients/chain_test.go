//go:build unix

package clients

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
	"noncegate/wire"
)

// ethereumNode is a node of the chain eip155:1 that gateways reach by its address.
type ethereumNode struct {
	*fakenode.Node
	chain *fakenode.Chain
}

func startEthereumNode(t *testing.T) *ethereumNode {
	t.Helper()
	c := fakenode.NewChain(time.Now().Add(-time.Hour), 100*time.Millisecond)
	server, err := fakenode.Serve(c, 1)
	expect.Must(t, err)
	e2e.CloseLater(t, server)
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

// signerList is what the tests look at of a list of signers.
type signerList struct {
	Next    string
	Signers []struct {
		Signer, Owner              string
		Next, Held, Unknown        int64
		Released, MaxAttempt       int64
		LowestReleased, Mined, Gap *int64
		OldestHold, Since          time.Time
		Stopped                    bool
	}
}

// listed is what signer list says.
func listed(p *e2e.Process, args ...string) (list signerList) {
	p.Helper()
	o := e2e.Run(p, append([]string{"signer", "list", "--json", "--admin", p.Admin}, args...)...)
	if o.Code != e2e.ExitOK {
		p.Fatalf("signer list %q: exit %d, stderr %s", args, o.Code, o.Stderr)
	}
	expect.Must(p, json.Unmarshal([]byte(o.Stdout), &list))
	return list
}

// signer runs a command about a signer and returns what it says.
func signer(p *e2e.Process, code int, args ...string) string {
	p.Helper()
	o := e2e.Run(p, append(append([]string{"signer"}, args...), "--admin", p.Admin)...)
	if o.Code != code {
		p.Fatalf("signer %q: exit %d, want %d: %s%s", args, o.Code, code, o.Stdout, o.Stderr)
	}
	return o.Stdout + o.Stderr
}

// gives has a nonce given back that is held.
func gives(c *e2e.Peer, back wire.AllocateResult, reason string) {
	c.Helper()
	c.Want("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"reason":%q}`, back.Signer, back.Nonce, back.Attempt, reason))
}

const someHash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"

func TestAGapOfReleasedNoncesIsListedAndEndedByHand(t *testing.T) {
	t.Parallel()
	p := e2e.Launch(t, sqliteStore(t))
	c := p.Connect()
	var held []wire.AllocateResult
	for range 4 {
		held = append(held, c.Allocate("treasury", ""))
	}
	c.Allocate("payouts", "")
	gives(c, held[0], "gas too low")
	gives(c, held[1], "gas too low")
	c.Want("ok", wire.MethodMarkUsed, `{"signer":"treasury","nonce":3,"txHash":"`+someHash+`"}`)

	gap := listed(p, "--filter=gap")
	if len(gap.Signers) != 1 {
		t.Fatalf("listed %+v", gap.Signers)
	}
	if s := gap.Signers[0]; s.Signer != "treasury" || s.Next != 4 || s.Held != 1 || s.Released != 2 || s.LowestReleased == nil || *s.LowestReleased != 0 ||
		s.MaxAttempt != 1 || s.OldestHold.IsZero() || s.Owner == "" || s.Mined != nil || s.Gap != nil || s.Stopped {
		t.Errorf("listed %+v", s)
	}
	if said := signer(p, e2e.ExitFailure, "release", "treasury", "2", "--attempt=2"); !strings.Contains(said, "conflict: ") {
		t.Errorf("another attempt: said %s", said)
	}
	for args, want := range map[string]string{
		"release treasury 2 --reason=lost":         "treasury: nonce 2, attempt 1, is RELEASED\n",
		"consume treasury 0 --tx-hash=" + someHash: "treasury: nonce 0, attempt 1, is CONSUMED\n",
		"consume treasury 1 --yes":                 "treasury: nonce 1, attempt 1, is CONSUMED\n",
		"floor payouts 7":                          "payouts: floor 7, next 7\n",
	} {
		if said := signer(p, e2e.ExitOK, strings.Fields(args)...); !strings.HasPrefix(said, want) {
			t.Errorf("%s: said %s", args, said)
		}
	}
	if s := listed(p, "--filter=gap").Signers; len(s) != 1 || s[0].Released != 1 || *s[0].LowestReleased != 2 {
		t.Errorf("with nonce 2 released: listed %+v", s)
	}
	if said := signer(p, e2e.ExitOK, "consume", "treasury", "2", "--yes"); !strings.HasPrefix(said, "treasury: nonce 2, attempt 1, is CONSUMED\n") {
		t.Errorf("said %s", said)
	}
	if s := listed(p, "--filter=gap").Signers; len(s) != 0 {
		t.Errorf("at the end: listed %+v", s)
	}
	if got := c.Allocate("treasury", ""); got.Nonce != 4 {
		t.Errorf("the next nonce of treasury is %d", got.Nonce)
	}
	if got := c.Allocate("payouts", ""); got.Nonce != 7 {
		t.Errorf("the next nonce of payouts is %d", got.Nonce)
	}
}

func TestTheMetricsSayWhatIsOpenInTheWholeStore(t *testing.T) {
	t.Parallel()
	store := sqliteStore(t)
	first := e2e.Launch(t, store)
	c := first.Connect()
	for range 2 {
		gives(c, c.Allocate("again", ""), "not sent")
	}
	c.Allocate("again", "")
	c.Allocate("s", "")
	gives(c, c.Allocate("s", ""), "not sent")
	_ = c.Close()
	first.Signal(syscall.SIGKILL)
	first.Exit()

	second := e2e.Launch(t, store) // counts at its start, and every 15 s
	for _, line := range []string{"noncegate_open_holds 2", "noncegate_unknown_holds 0", "noncegate_released_nonces 1", "noncegate_repeated_nonces 1", "noncegate_oldest_overdue_hold_seconds 0"} {
		second.Await(line, func() bool { return second.Metric(line) })
	}
}

func TestANewSignerBeginsWhereItsAccountStandsWithWhatIsInThePool(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	node.mine(sent(1, 0, 5)...)
	node.SetPool(sent(1, 5, 7)...)
	p := e2e.Launch(t, sqliteStore(t), node.flag(), "--chain-poll=20ms")
	c := p.Connect()
	if got := c.Allocate(signerOf(1), ""); got.Nonce != 7 || got.Attempt != 1 {
		t.Errorf("got nonce %d, attempt %d; want 7, 1", got.Nonce, got.Attempt)
	}
	if got := c.Allocate(signerOf(2), ""); got.Nonce != 0 {
		t.Errorf("an account that was never used: got nonce %d", got.Nonce)
	}
	if got := c.Allocate("eip155:10:"+fakenode.Account(1), ""); got.Nonce != 0 {
		t.Errorf("a signer of another chain: got nonce %d", got.Nonce)
	}
	if said := signer(p, e2e.ExitOK, "show", signerOf(1)); !strings.Contains(said, "mined   5") || !strings.Contains(said, "at block  1") {
		t.Errorf("signer show says\n%s", said)
	}
	if s := listed(p).Signers; len(s) != 3 || s[1].Signer != signerOf(1) || s[1].Mined == nil || *s[1].Mined != 5 || s[2].Mined == nil || s[0].Mined != nil {
		t.Errorf("listed %+v", s)
	}
	node.SetPool()
	node.mine(sent(1, 5, 8)...)
	p.Await("the count of the next block", func() bool {
		status := e2e.Decode[wire.StatusResult](t, c.Want("ok", wire.MethodStatus, fmt.Sprintf(`{"signer":%q}`, signerOf(1))))
		return status.Chain != nil && status.Chain.Mined == 8 && status.Chain.Head == 2
	})
	for _, line := range []string{`noncegate_chain_head_number{chain="eip155:1"} 2`, `noncegate_chain_node_up{chain="eip155:1",node="127.0.0.1"} 1`, `noncegate_chain_stopped{chain="eip155:1"} 0`} {
		if !p.Metric(line) {
			t.Errorf("/metrics has no line %s", line)
		}
	}
}

func TestWhatBlocksASignerOnItsChainIsListedAsAGapUntilItIsMined(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	p := e2e.Launch(t, sqliteStore(t), node.flag(), "--chain-poll=20ms", "--chain-gap-after=1s", "--hold-ttl=10m")
	c := p.Connect()
	for range 2 {
		c.Allocate(signerOf(1), "")
	}
	c.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":1,"txHash":%q}`, signerOf(1), someHash))
	c.Allocate(signerOf(2), "")
	p.Await("the gap", func() bool { return len(listed(p, "--filter=gap").Signers) > 0 })
	s := listed(p, "--filter=gap").Signers
	if len(s) != 1 || s[0].Signer != signerOf(1) || s[0].Gap == nil || *s[0].Gap != 0 || s[0].Released != 0 {
		t.Errorf("listed %+v", s)
	}
	if said := signer(p, e2e.ExitOK, "show", signerOf(1)); !strings.Contains(said, "gap     nonce 0") {
		t.Errorf("signer show says\n%s", said)
	}
	if !p.Metric(`noncegate_chain_gaps{chain="eip155:1"} 1`) || !p.Metric(`noncegate_chain_events_total{chain="eip155:1",type="gap"} 1`) {
		t.Error("/metrics does not tell of the gap")
	}
	node.mine(sent(1, 0, 1)...)
	p.Await("the end of the gap", func() bool { return len(listed(p, "--filter=gap").Signers) == 0 })
	p.Await("its event", func() bool { return p.Metric(`noncegate_chain_events_total{chain="eip155:1",type="gapClosed"} 1`) })
}

// TestAGapIsToldByWhoeverTakesOverAlthoughNobodyAsks: its owner is killed, and the next one is
// stopped in order. Nobody uses the account meanwhile, as is so of accounts that stand still.
func TestAGapIsToldByWhoeverTakesOverAlthoughNobodyAsks(t *testing.T) {
	db, node := e2e.Database(t), startEthereumNode(t)
	launch := func(id string) *e2e.Process {
		return e2e.Launch(t, "--store="+db, "--node-id="+id, node.flag(), "--chain-poll=20ms", "--chain-gap-after=1s", "--hold-ttl=10m", "--lease-ttl=1s")
	}
	const gap = `noncegate_chain_gaps{chain="eip155:1"} 1`
	first := launch("first")
	c := first.Connect()
	c.Allocate(signerOf(1), "")
	c.Allocate(signerOf(1), "")
	first.Await("the gap", func() bool { return first.Metric(gap) })
	first.Signal(syscall.SIGKILL)
	second := launch("second")
	second.Await("the gap after a kill", func() bool { return second.Metric(gap) })
	third := launch("third")
	second.Signal(syscall.SIGTERM)
	third.Await("the gap after a stop", func() bool { return third.Metric(gap) })
	third.Await("its line", func() bool { return strings.Contains(third.Printed(), "a nonce blocks its account") })
	third.Await("the list", func() bool { return len(listed(third, "--filter=gap").Signers) > 0 })
	if s := listed(third, "--filter=gap").Signers; len(s) != 1 || s[0].Signer != signerOf(1) || s[0].Gap == nil || *s[0].Gap != 0 {
		t.Errorf("listed %+v", s)
	}
}

// TestWhatTheChainSaysOfASignerIsSaidByItsOwnerAtAnyNode: and while the owner cannot be asked, and by the
// next owner before it has looked, it is what the owner stored, as the list has it.
func TestWhatTheChainSaysOfASignerIsSaidByItsOwnerAtAnyNode(t *testing.T) {
	t.Parallel()
	node := startEthereumNode(t)
	f := e2e.ServeEach(t, "a b", node.flag(), "--chain-poll=20ms", "--chain-gap-after=1s", "--hold-ttl=10m", "--forward-timeout=1s")
	a, b := f.Nodes["a"].Connect(), f.Nodes["b"].Connect()
	account := 0
	for owner := ""; owner != "a"; owner = e2e.StatusOf(b, signerOf(account)).Owner {
		account++
		b.Allocate(signerOf(account), "")
	}
	name := signerOf(account)
	b.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q}`, name, someHash))
	b.Allocate(name, "")
	gapOf := func(c *e2e.Peer) *wire.Gap {
		if chain := e2e.StatusOf(c, name).Chain; chain != nil {
			return chain.Gap
		}
		return nil
	}
	f.Nodes["a"].Await("the gap at its owner", func() bool { return gapOf(a) != nil })
	f.Nodes["b"].Await("the list at the other node", func() bool { return len(listed(f.Nodes["b"], "--filter=gap").Signers) > 0 })
	want := *gapOf(a)
	if s := listed(f.Nodes["b"], "--filter=gap").Signers[0]; s.Signer != name || !s.Since.Equal(time.Time(want.Since)) {
		t.Errorf("the owner says %+v, and the list has %+v", want, s)
	}
	said := e2e.StatusOf(b, name).Chain
	if said == nil || said.Partial || said.Gap == nil || *said.Gap != want || want.Nonce != 0 || want.Blocked != 1 || want.TxHash != someHash {
		t.Errorf("the owner says %+v, and the other node %+v", want, said)
	}
	for who, c := range map[string]*e2e.Peer{"the owner": a, "the other node": b} {
		list := e2e.Decode[wire.ListResult](t, c.Want("ok", wire.MethodList, fmt.Sprintf(`{"signer":%q}`, name)))
		if len(list.Allocations) != 2 || list.Partial || list.Allocations[0].Chain != wire.ChainDropped || list.Allocations[1].Chain != "" {
			t.Errorf("%s lists %+v", who, list)
		}
	}

	f.Nodes["a"].Signal(syscall.SIGKILL)
	f.Nodes["a"].Exit()
	var alone, taken bool // what the node that is left has been seen as
	for !taken {
		status := e2e.StatusOf(b, name)
		chain := status.Chain
		switch {
		case chain == nil || chain.Gap == nil || *chain.Gap != want:
			t.Fatalf("after the end of the owner, which said %+v: %+v, %+v", want, status, chain)
		case chain.Partial:
			alone = true
			list := e2e.Decode[wire.ListResult](t, b.Want("ok", wire.MethodList, fmt.Sprintf(`{"signer":%q}`, name)))
			if list.Allocations[0].Chain != wire.ChainDropped {
				t.Errorf("without the owner: listed %+v", list)
			}
		default:
			taken = status.Owner == "b"
		}
	}
	if !alone {
		t.Error("no answer was partial while the owner was away")
	}
}
