package guard

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// errFull says that as many locks are kept as may be. Nothing was taken.
var errFull = errors.New("as many locks are kept as may be")

// Memory keeps the locks of one node. They are gone when its process is.
type Memory struct {
	maxLocks int

	mu    sync.Mutex // guards what follows
	locks map[string]*memoryLock
	ends  expiry
}

var _ Locks = (*Memory)(nil)

// memoryLock is one lock.
type memoryLock struct {
	key, value string
	ends       time.Time // monotonic
	index      int       // in the heap
}

// NewMemory keeps up to maxLocks, each a few hundred bytes. Beyond it a take is
// errFull until one ends or is given back.
func NewMemory(maxLocks int) *Memory {
	return &Memory{maxLocks: maxLocks, locks: make(map[string]*memoryLock)}
}

// Len is the number of locks that are kept, some of which may have ended.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.locks)
}

// Run implements Locks.
func (m *Memory) Run(_ context.Context, steps []Step) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.ends) > 0 && !m.ends[0].ends.After(now) {
		m.dropLocked(m.ends[0])
	}
	for i := range steps {
		if s := &steps[i]; s.Release {
			m.releaseLocked(s)
		} else {
			m.takeLocked(s, now)
		}
	}
}

func (m *Memory) takeLocked(s *Step, now time.Time) {
	if l, taken := m.locks[s.Key]; taken {
		s.Left = l.ends.Sub(now)
		return
	}
	if len(m.locks) >= m.maxLocks {
		s.Err = errFull
		return
	}
	l := &memoryLock{key: s.Key, value: s.Value, ends: now.Add(s.TTL)}
	m.locks[s.Key] = l
	heap.Push(&m.ends, l)
	s.OK = true
}

func (m *Memory) releaseLocked(s *Step) {
	l, taken := m.locks[s.Key]
	if !taken || l.value != s.Value {
		s.Others = taken
		return
	}
	m.dropLocked(l)
	s.OK = true
}

func (m *Memory) dropLocked(l *memoryLock) {
	heap.Remove(&m.ends, l.index)
	delete(m.locks, l.key)
}

// expiry is a heap.Interface, the lock that ends first on top.
type expiry []*memoryLock

func (e expiry) Len() int           { return len(e) }
func (e expiry) Less(i, j int) bool { return e[i].ends.Before(e[j].ends) }
func (e expiry) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push implements heap.Interface.
func (e *expiry) Push(l any) {
	lock := l.(*memoryLock)
	lock.index = len(*e)
	*e = append(*e, lock)
}

// Pop implements heap.Interface.
func (e *expiry) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
