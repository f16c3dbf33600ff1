package ws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/test/lab/wait"
)

// ofChain begins the names of the signers that a fakeChain speaks of.
const ofChain = "eip155:7:"

// fakeChain is a chain that says what a test says.
type fakeChain struct {
	mu      sync.Mutex
	view    nonce.ChainView
	status  *nonce.ChainState
	words   map[int64]string
	offer   *nonce.Offer
	only    string        // the chain besides which no other of Ethereum's is configured; "": all are
	patient bool          // requests wait until the test answers; else the wait is over at once
	wait    time.Duration // after which the wait is over; 0: never
	waiting []func()      // of those that wait, or have waited
}

func withChain(f *fakeChain) func(*setup) {
	return func(s *setup) {
		s.Service.Chain, s.ws.Chain = f, f
	}
}

// answer makes the chain known, and ends all waits.
func (f *fakeChain) answer(v nonce.ChainView) {
	v.Known = true
	f.mu.Lock()
	f.view = v
	f.mu.Unlock()
	f.endWaits()
}

// endWaits ends all waits, whether the chain is known or not.
func (f *fakeChain) endWaits() {
	f.mu.Lock()
	waiting := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	for _, done := range waiting {
		done()
	}
}

func (f *fakeChain) waits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting)
}

// Refuses, Await, Tell and Signer implement nonce.Chain.
func (f *fakeChain) Refuses(signer string) string {
	if f.only != "" && strings.HasPrefix(signer, "eip155:") && !strings.HasPrefix(signer, f.only+":") {
		return "there is only " + f.only
	}
	return ""
}

func (f *fakeChain) Await(q *nonce.Request, heard func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !strings.HasPrefix(q.Signer, ofChain) || f.view.Known:
		return false
	case f.patient:
		f.waiting = append(f.waiting, heard)
		if f.wait > 0 {
			time.AfterFunc(f.wait, heard)
		}
	default:
		go heard()
	}
	return true
}

func (f *fakeChain) Tell(q *nonce.Request, r *nonce.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case q.Kind == nonce.KindRepair:
		r.Offer = f.offer
	case !strings.HasPrefix(q.Signer, ofChain):
	case q.Kind == nonce.KindStatus:
		if f.view.Known {
			r.Said = &nonce.ChainSaid{State: f.status}
		}
	default:
		r.Said = f.said(r.Page.Rows)
	}
}

func (f *fakeChain) said(rows []nonce.Row) *nonce.ChainSaid {
	said := new(nonce.ChainSaid)
	for _, row := range rows {
		if word := f.words[row.Nonce]; word != "" {
			said.Words = append(said.Words, nonce.ChainWord{Nonce: row.Nonce, Attempt: row.Attempt, Word: word})
		}
	}
	return said
}

func (f *fakeChain) Signer(signer string) nonce.ChainSigner {
	if !strings.HasPrefix(signer, ofChain) {
		return nil
	}
	return f
}

// UsedBy implements nonce.ChainSigner.
func (*fakeChain) RepairOld() bool           { return false }
func (*fakeChain) UsedBy(int64) nonce.TxHash { return nonce.TxHash{} }

// View implements nonce.ChainSigner.
func (f *fakeChain) View(int64) nonce.ChainView {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

// Unseen, Committed and Owned implement nonce.ChainSigner.
func (f *fakeChain) Unseen(int64, int64) bool { return false }
func (f *fakeChain) Committed([]nonce.Event)  {}
func (f *fakeChain) Owned(bool)               {}

// says carries out a directive of a transcript about the chain.
func (f *fakeChain) says(words []string) error {
	v := nonce.ChainView{}
	status := &nonce.ChainState{Head: 1000}
	for _, w := range words {
		name, text, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		switch name {
		case "mined":
			v.Mined, v.Start, status.Mined = n, n, n
		case "final":
			v.Final, status.Final, status.FinalKnown = n, n, true
		case "window":
			v.Window, status.Window = n, n
		case "gap":
			status.Trouble = &nonce.Gap{Kind: nonce.WatchGap, Nonce: n, Since: time.Now(), Unknown: true, Attempt: 1, Blocked: 2}
		case "fee":
			f.offer = &nonce.Offer{MaxFeePerGas: text}
			err = nil
		default:
			at, number := strconv.ParseInt(name, 10, 64)
			if err = number; err == nil {
				f.words = map[int64]string{at: text}
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	f.mu.Lock()
	f.status = status
	f.mu.Unlock()
	f.answer(v)
	return nil
}

// rewrite gives a nonce another state, as a sweep of another node would, with a reason.
func (g *gateway) rewrite(signer, at, reason string, to nonce.Status) error {
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return err
	}
	_, err = g.Store.Locked(g.Context(), nonce.SignerNeed{Signer: signer}, func(l nonce.Loaded) (nonce.Write, error) {
		row := l.Signers[0].Signer
		i, ok := row.Find(n)
		if !ok {
			return nonce.Write{}, errors.New("there is no such nonce")
		}
		row.Live = slices.Clone(row.Live)
		e := &row.Live[i]
		note := nonce.Note{Reason: reason}
		if e.Note != nil {
			note.TxHash, note.Replaced = e.Note.TxHash, e.Note.Replaced
		}
		if reason == nonce.ReasonUnseen {
			note.Earlier = &nonce.Earlier{Attempt: e.Attempt, Reason: reason}
		}
		e.Note, e.Status, e.Until = &note, to, 0
		if to == nonce.Held {
			e.Until = time.Now().Add(time.Minute).UnixMilli()
		}
		row.Version++
		return nonce.Write{Name: signer, Term: l.Signers[0].Shard.Term(), Signer: row}, nil
	})
	return err
}

const (
	account      = ofChain + "0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	otherAccount = ofChain + "0x52908400098527886e0f7030069857d2e4169ee7"
)

// patientChain is one whose first word a test awaits.
func patientChain() (*fakeChain, func(*setup)) {
	f := &fakeChain{patient: true}
	return f, withChain(f)
}

// awaitWaits returns when n requests wait for the chain.
func (f *fakeChain) awaitWaits(t testing.TB, n int) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("%d requests to wait for the chain", n), func() bool { return f.waits() == n })
}

// A request that is used again must not be decided by the wait of the one before.
func TestALateWordOfTheChainDecidesNothingElse(t *testing.T) {
	chain := &fakeChain{patient: true, wait: time.Millisecond}
	g := startGateway(t, withChain(chain), withLocks(newLocksmith()))
	c := g.dial()
	for range 50 {
		c.AskRefused("1", "nonce_allocate", `["`+account+`"]`, "unavailable")
	}
	var late sync.WaitGroup
	late.Go(chain.endWaits)
	for range 50 {
		c.Ask("2", "nonce_allocate", guarded("a", `{"key":"k"}`))
		c.Call("3", "nonce_markRecyclable", `["a",0]`)
	}
	late.Wait()
	g.awaitNoLines()
}

func TestAWaitForAChainEndsWhenTheGatewayGoesAway(t *testing.T) {
	for name, end := range map[string]func(*Server, context.Context) error{"drain": (*Server).Drain, "stop": (*Server).Stop} {
		t.Run(name, func(t *testing.T) {
			chain, with := patientChain()
			g := startGateway(t, with)
			c := g.dial()
			c.Request("1", "nonce_allocate", `["`+account+`"]`)
			chain.awaitWaits(t, 1)
			ended := make(chan error, 1)
			go func() { ended <- end(g.srv, t.Context()) }() // a context without an end
			if name == "drain" {
				c.WantError("1", "unavailable")
				c.WantClosed(1012)
			}
			must(t, wait.For(t, ended, "the end"))
			if n := chain.waits(); n != 1 { // its word is late, and decides nothing
				t.Errorf("the chain is waited for by %d", n)
			}
			chain.endWaits()
		})
	}
}
