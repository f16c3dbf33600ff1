package quota

import (
	"container/list"
	"sync"
	"time"
)

// table keeps one entry for each key that is in use, and for a bounded number of
// those that are not as long as forgetting them would make a difference.
type table[K comparable, E any] struct {
	most int                      // of those that are not in use
	full func(*E, time.Time) bool // a new entry would be the same

	mu    sync.Mutex // guards what follows, and uses
	byKey map[K]*entry[K, E]
	idle  list.List // of those not in use, the one that has been so for longest first
}

type entry[K comparable, E any] struct {
	key  K
	uses int
	idle *list.Element // nil while in use
	E    E
}

func newTable[K comparable, E any](most int, full func(*E, time.Time) bool) *table[K, E] {
	return &table[K, E]{most: most, full: full, byKey: make(map[K]*entry[K, E])}
}

// use returns the entry of a key and counts it as in use, if allow agrees. It is
// called with the number of those who use it already.
func (t *table[K, E]) use(key K, now time.Time, allow func(e *E, uses int) bool) (*entry[K, E], bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneLocked(now)
	e := t.byKey[key]
	if e == nil {
		e = &entry[K, E]{key: key}
	}
	if !allow(&e.E, e.uses) {
		return nil, false
	}
	if e.idle != nil {
		t.idle.Remove(e.idle)
		e.idle = nil
	}
	e.uses++
	t.byKey[key] = e
	return e, true
}

// leave undoes a use.
func (t *table[K, E]) leave(e *entry[K, E], now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.uses--
	if e.uses > 0 {
		return
	}
	if t.full(&e.E, now) {
		delete(t.byKey, e.key)
		return
	}
	e.idle = t.idle.PushBack(e)
	t.pruneLocked(now)
}

// pruneLocked forgets what may be forgotten, a few at a time, so that nobody waits
// for many, and the oldest of too many.
func (t *table[K, E]) pruneLocked(now time.Time) {
	const few = 4
	for range few {
		first := t.idle.Front()
		if first == nil {
			return
		}
		e := first.Value.(*entry[K, E])
		if t.idle.Len() <= t.most && !t.full(&e.E, now) {
			return
		}
		t.idle.Remove(first)
		delete(t.byKey, e.key)
	}
}

// len is how many entries there are.
func (t *table[K, E]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}
