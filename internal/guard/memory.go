package guard

import (
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

	mu    sync.Mutex // guards locks
	locks map[string]*memoryLock
}

var _ Locks = (*Memory)(nil)

// memoryLock is one lock.
type memoryLock struct {
	value string
	ends  time.Time // monotonic
	timer *time.Timer
}

// NewMemory keeps up to maxLocks, each a few hundred bytes. Beyond it a take is
// errFull until one ends or is given back.
func NewMemory(maxLocks int) *Memory {
	return &Memory{maxLocks: maxLocks, locks: make(map[string]*memoryLock)}
}

// Len is the number of locks that are kept.
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
	for i := range steps {
		if s := &steps[i]; s.Release {
			m.releaseLocked(s, now)
		} else {
			m.takeLocked(s, now)
		}
	}
}

func (m *Memory) takeLocked(s *Step, now time.Time) {
	if l := m.locks[s.Key]; l != nil && l.ends.After(now) {
		s.Left = l.ends.Sub(now)
		return
	}
	m.dropLocked(s.Key)
	if len(m.locks) >= m.maxLocks {
		s.Err = errFull
		return
	}
	l := &memoryLock{value: s.Value, ends: now.Add(s.TTL)}
	key := s.Key // the step is used again
	l.timer = time.AfterFunc(s.TTL, func() { m.end(key, l) })
	m.locks[s.Key] = l
	s.OK = true
}

// releaseLocked leaves a lock of another value, and one that has ended, to its timer.
func (m *Memory) releaseLocked(s *Step, now time.Time) {
	l := m.locks[s.Key]
	if l == nil || !l.ends.After(now) {
		return
	}
	if s.OK = l.value == s.Value; s.OK {
		m.dropLocked(s.Key)
	}
	s.Others = !s.OK
}

func (m *Memory) dropLocked(key string) {
	if l := m.locks[key]; l != nil {
		l.timer.Stop()
		delete(m.locks, key)
	}
}

// end drops a lock whose time is over, unless that was done, and the key is another's by now.
func (m *Memory) end(key string, l *memoryLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[key] == l {
		delete(m.locks, key)
	}
}
