package quota

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// table keeps one entry for each key that is in use, and for a bounded number of
// those that are not as long as forgetting them would make a difference.
type table[K comparable, E any] struct {
	full func(*E, time.Time) bool // a new entry would be the same

	mu   sync.Mutex // guards what follows, and uses
	used map[K]*entry[K, E]
	idle *simplelru.LRU[K, *entry[K, E]] // by when they were left
}

type entry[K comparable, E any] struct {
	key  K
	uses int
	E    E
}

// newTable bounds the entries that are not in use.
func newTable[K comparable, E any](maxIdle int, full func(*E, time.Time) bool) *table[K, E] {
	idle, _ := simplelru.NewLRU[K, *entry[K, E]](maxIdle, nil) // fails for a size below 1
	return &table[K, E]{full: full, used: make(map[K]*entry[K, E]), idle: idle}
}

// use returns the entry of a key and counts it as in use, if allow agrees. It is
// called with the number of its users so far.
func (t *table[K, E]) use(key K, now time.Time, allow func(e *E, uses int) bool) (*entry[K, E], bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneLocked(now)
	e := t.used[key]
	if e == nil {
		e, _ = t.idle.Peek(key)
	}
	if e == nil {
		e = &entry[K, E]{key: key}
	}
	if !allow(&e.E, e.uses) {
		return nil, false
	}
	if e.uses == 0 {
		t.idle.Remove(key)
		t.used[key] = e
	}
	e.uses++
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
	delete(t.used, e.key)
	if !t.full(&e.E, now) {
		t.idle.Add(e.key, e)
	}
}

// pruneLocked forgets what may be forgotten, a few at a time, so that no caller waits
// for many.
func (t *table[K, E]) pruneLocked(now time.Time) {
	const few = 4
	for range few {
		_, e, ok := t.idle.GetOldest()
		if !ok || !t.full(&e.E, now) {
			return
		}
		t.idle.RemoveOldest()
	}
}

// len is how many entries there are.
func (t *table[K, E]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.used) + t.idle.Len()
}
