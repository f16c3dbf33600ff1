package chain

import (
	"context"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// recallEvery is how often nodes are asked what used nonces of which lists could not say it,
	// recallBatch of how many; maxRecall bounds those that wait. One that finds no room is asked for
	// when it is listed again.
	recallEvery = 5 * time.Second
	recallBatch = 32
	maxRecall   = 4 * recallBatch
	// maxRecalled bounds the answers that are kept, of all signers, each the end of a hash.
	maxRecalled = 4096
)

// memory is what used nonces that are final, as nodes said when a list needed it: a node that has
// restarted, or was not the owner, has seen no block of them.
type memory struct {
	found *lru.Cache[use, [8]byte]
	asked time.Time // the last question; of the watcher

	mu   sync.Mutex
	lost map[use]Ask // what nodes are to be asked for
}

// use is a nonce of an account that the chain has used.
type use struct {
	account string
	nonce   int64
}

func newMemory() *memory {
	found, err := lru.New[use, [8]byte](maxRecalled)
	if err != nil {
		panic("chain: " + err.Error()) // the size is above 0
	}
	return &memory{found: found, lost: make(map[use]Ask)}
}

// recall has the nodes asked which transaction it was that an ask is about.
func (m *memory) recall(a Ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lost) < maxRecall {
		m.lost[use{a.Account, a.Nonce}] = a
	}
}

// take removes some of what nodes are to be asked for.
func (m *memory) take() (asks []Ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for u, a := range m.lost {
		if len(asks) == recallBatch {
			break
		}
		asks = append(asks, a)
		delete(m.lost, u)
	}
	return asks
}

// recallSome asks the nodes for some nonces, now and then. Where they cannot tell, nothing is known
// as before.
func (t *Tracker) recallSome(ctx context.Context, now time.Time) {
	if now.Sub(t.memory.asked) < recallEvery {
		return
	}
	asks := t.memory.take()
	if len(asks) == 0 {
		return
	}
	t.memory.asked = now
	at := t.number()
	one, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	found, err := t.chain.Lookup(one, asks)
	if err != nil {
		t.log.Debug("asking what used nonces", "nonces", len(asks), "error", err)
		return
	}
	for i := range asks {
		if s := t.known(asks[i].Account); s != nil {
			s.recalled(&asks[i], &found[i], at)
		}
	}
}

// recalled follows what nodes say of a nonce that a list was asked for.
func (s *signer) recalled(a *Ask, f *Sighting, at int64) {
	s.mu.Lock()
	final := a.Nonce < s.final
	s.mu.Unlock()
	switch {
	case !final: // a reorganization may still change it
		s.sighted(a.Nonce, f, at)
	case f.Settled == Mined && f.SettledTx != Hash{}:
		s.t.memory.found.Add(use{a.Account, a.Nonce}, endOf(f.SettledTx))
	}
}
