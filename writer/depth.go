package writer

// Depth is how much one connection has waiting.
type Depth struct {
	Bytes    int64 // of messages queued, encoded or being written
	Promised int64 // bytes reserved for replies that are not queued yet
	Messages int   // all of these together
	Paused   bool  // the client is not read
}

// Depth says how much waits now.
func (q *Queue) Depth() Depth {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Depth{Bytes: q.queued + q.unwritten, Promised: q.reserved, Messages: q.msgs, Paused: q.paused}
}
