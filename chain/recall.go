package chain

import (
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
	// maxRecalled bounds the uses that are kept, of all signers, each the end of a hash: some 10 MB.
	maxRecalled = 1 << 16
)

// memory is what used nonces of which there is no note any more, and those of before this node followed
// them, as nodes said when a list needed it.
type memory struct {
	found *lru.Cache[use, [8]byte] // the end of a hash, which tells it apart from what is recorded

	mu    sync.Mutex  // guards what follows
	lost  map[use]Ask // what nodes are to be asked for
	asked time.Time   // the last question
}

// use is a nonce of an account that the chain has used.
type use struct {
	account string
	nonce   int64
}

func newMemory() *memory {
	found, _ := lru.New[use, [8]byte](maxRecalled) // fails for a size below 1 alone
	return &memory{found: found, lost: make(map[use]Ask)}
}

func endOf(tx Hash) [8]byte { return [8]byte(tx[len(tx)-8:]) }

func (m *memory) used(account string, n int64, tx Hash) { m.found.Add(use{account, n}, endOf(tx)) }

// want has the nodes asked which transaction it was that an ask is about.
func (m *memory) want(a Ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lost) < maxRecall {
		m.lost[use{a.Account, a.Nonce}] = a
	}
}

// recall are questions for some of the nonces that lists could not say, now and then.
func (t *Tracker) recall(now time.Time) (list []question) {
	m := t.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.asked) < recallEvery || len(m.lost) == 0 {
		return nil
	}
	m.asked = now
	for u, a := range m.lost {
		if s := t.known(u.account); s != nil && len(list) < recallBatch {
			list = append(list, question{s: s, ask: a, why: whyListed})
		}
		if delete(m.lost, u); len(list) == recallBatch {
			break
		}
	}
	return list
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
		s.t.memory.used(a.Account, a.Nonce, f.SettledTx)
	}
}
