package noncetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
)

// Chain is a chain that says, of every signer, what a test writes into it.
type Chain struct {
	mu                sync.Mutex // guards all below
	view              nonce.ChainView
	unseen, repairOld bool
	heard             []string
	owned             bool
}

var (
	_ nonce.Chain       = (*Chain)(nil)
	_ nonce.ChainSigner = (*Chain)(nil)
)

// Signer implements nonce.Chain.
func (c *Chain) Signer(string) nonce.ChainSigner { return c }

// Refuses and Await implement nonce.Chain: everything goes on.
func (*Chain) Refuses(string) string             { return "" }
func (*Chain) Await(*nonce.Request, func()) bool { return false }

// Tell implements nonce.Chain: there is nothing to tell.
func (*Chain) Tell(*nonce.Request, *nonce.Result) {}

// View and the others implement nonce.ChainSigner.
func (c *Chain) View(int64) nonce.ChainView {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *Chain) Unseen(int64, int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unseen
}

func (c *Chain) RepairOld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.repairOld
}

func (c *Chain) UsedBy(int64) (h nonce.TxHash) {
	h[31] = 77
	return h
}

func (c *Chain) Committed(events []nonce.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range events {
		c.heard = append(c.heard, fmt.Sprintf("%v %d#%d", e.Type, e.Nonce, e.Attempt))
	}
}

func (c *Chain) Owned(owned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = owned
}

// Heard is what the chain was told: who owns, and what was committed.
func (c *Chain) Heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("owned %v: %s", c.owned, strings.Join(c.heard, ", "))
}

// Say has the chain say what the words mean, and nothing else, from now on.
//
//	known mined=1 final=1 start=5 window=2 ahead=1 claimed=9 unknown=10m gap=3 clear old repairold unseen
func (c *Chain) Say(t testing.TB, words ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.unseen, c.repairOld = nonce.ChainView{}, false, false
	numbers := map[string]*int64{
		"mined": &c.view.Mined, "final": &c.view.Final, "start": &c.view.Start, "window": &c.view.Window, "ahead": &c.view.Ahead, "claimed": &c.view.Claimed, "gap": &c.view.Trouble.Nonce,
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if into := numbers[key]; into != nil {
			if _, err := fmt.Sscan(value, into); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
		}
		switch key {
		case "known":
			c.view.Known = true
		case "repairold":
			c.repairOld = true
		case "old":
			c.view.StartOld = true
		case "gap":
			c.view.Trouble.Kind = nonce.WatchGap
		case "clear":
			c.view.Trouble.Kind = nonce.WatchClear
		case "unseen":
			c.unseen = true
		case "unknown":
			var err error
			if c.view.UnknownFor, err = time.ParseDuration(value); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
		default:
			if numbers[key] == nil {
				t.Fatalf("what is %q?", word)
			}
		}
	}
}
