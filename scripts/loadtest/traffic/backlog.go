package traffic

import "time"

// backlog is the times of bursts that are due and wait, oldest first.
type backlog struct {
	due  []time.Duration
	head int
}

func (b *backlog) empty() bool { return b.head == len(b.due) }

// push reports false, and does nothing, when there are too many.
func (b *backlog) push(due time.Duration) bool {
	if len(b.due)-b.head >= maxBacklog {
		return false
	}
	if b.head > len(b.due)/2 {
		b.due = append(b.due[:0], b.due[b.head:]...)
		b.head = 0
	}
	b.due = append(b.due, due)
	return true
}

// pop returns the oldest; false: there is none.
func (b *backlog) pop() (time.Duration, bool) {
	if b.empty() {
		return 0, false
	}
	due := b.due[b.head]
	b.head++
	if b.empty() {
		b.due, b.head = b.due[:0], 0
	}
	return due, true
}

// holds is a ring of the last nonces handed out to a connection, oldest first.
type holds struct {
	limit int    // that are remembered
	ring  []hold // empty until there is one
	head  int
	count int
}

// push forgets the oldest where there is no room.
func (h *holds) push(held hold) {
	if h.count == len(h.ring) && len(h.ring) < h.limit {
		h.grow()
	}
	if h.count == len(h.ring) {
		h.head = (h.head + 1) % len(h.ring)
		h.count--
	}
	h.ring[(h.head+h.count)%len(h.ring)] = held
	h.count++
}

func (h *holds) grow() {
	ring := make([]hold, min(h.limit, max(8, 2*len(h.ring))))
	for i := range h.count {
		ring[i] = h.ring[(h.head+i)%len(h.ring)]
	}
	h.ring, h.head = ring, 0
}

// pop returns the oldest that is still held at the time now.
func (h *holds) pop(now time.Duration) (hold, bool) {
	for h.count > 0 {
		oldest := h.ring[h.head]
		h.head = (h.head + 1) % len(h.ring)
		h.count--
		if now < oldest.until {
			return oldest, true
		}
	}
	return hold{}, false
}
