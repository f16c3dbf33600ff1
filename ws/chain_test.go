package ws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// ofChain begins the names of the signers that a fakeChain speaks of.
const ofChain = "eip155:7:"

// fakeChain is a chain that says what a test says.
type fakeChain struct {
	mu      sync.Mutex
	view    nonce.ChainView
	status  *wire.ChainStatus
	words   map[int64]string
	offer   *nonce.Offer
	patient bool     // who asks first waits until the test answers; else the wait is over at once
	waiting []func() // who waits
	asked   int      // how often ready was asked
}

func withChain(f *fakeChain) func(*setup) {
	return func(s *setup) {
		s.Service.Chain = f
		s.ws.ChainReady, s.ws.ChainStatus, s.ws.ChainStates, s.ws.ChainOffer = f.ready, f.stateOf, f.wordsOf, f.offerOf
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

func (f *fakeChain) ready(signer string, _ bool, done func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	switch {
	case !strings.HasPrefix(signer, ofChain) || f.view.Known:
		return true
	case f.patient:
		f.waiting = append(f.waiting, done)
	default:
		go done()
	}
	return false
}

// Signer implements nonce.Chain.
func (f *fakeChain) Signer(signer string) nonce.ChainSigner {
	if !strings.HasPrefix(signer, ofChain) {
		return nil
	}
	return f
}

// UsedBy implements nonce.ChainSigner.
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

func (f *fakeChain) stateOf(_ context.Context, signer string, _ int64) *wire.ChainStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.HasPrefix(signer, ofChain) || !f.view.Known {
		return nil
	}
	return f.status
}

func (f *fakeChain) wordsOf(signer string, rows []nonce.Row) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.HasPrefix(signer, ofChain) {
		return nil
	}
	words := make([]string, len(rows))
	for i := range rows {
		words[i] = f.words[rows[i].Nonce]
	}
	return words
}

func (f *fakeChain) offerOf(string, int64) *nonce.Offer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.offer
}

// says carries out a directive of a transcript about the chain.
func (f *fakeChain) says(words []string) error {
	v := nonce.ChainView{}
	status := &wire.ChainStatus{Head: 1000}
	for _, w := range words {
		name, text, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		switch name {
		case "mined":
			v.Mined, v.Start, status.Mined = n, n, n
		case "final":
			v.Final, status.Final = n, &n
		case "window":
			v.Window, status.Window = n, n
		case "gap":
			status.Gap = &wire.Gap{Nonce: n, Since: wire.Time(time.Now()), Status: wire.StatusUnknown, Attempt: 1, Blocked: 2}
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
