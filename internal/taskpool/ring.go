package taskpool

// ring is a first-in-first-out queue of tasks that grows by doubling, so that a
// large capacity costs nothing until it is used.
type ring struct {
	buf     []Task
	head, n int
}

// push appends a task. The caller has seen to it that n is below capacity.
func (r *ring) push(t Task, capacity int) {
	if r.n == len(r.buf) {
		grown := make([]Task, min(max(2*len(r.buf), 16), capacity))
		copied := copy(grown, r.buf[r.head:])
		copy(grown[copied:], r.buf[:r.head])
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = t
	r.n++
}

// pop removes the oldest task.
func (r *ring) pop() (Task, bool) {
	if r.n == 0 {
		return nil, false
	}
	t := r.buf[r.head]
	r.buf[r.head] = nil
	r.head = (r.head + 1) % len(r.buf)
	r.n--
	return t, true
}
