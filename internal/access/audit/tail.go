package audit

import "sync"

// Kept is how many of the last lines are kept to be looked at.
const Kept = 1000

// Line is a line that was written.
type Line struct {
	Seq int64 // from 1
	Entry
}

// tail is the last lines, the one of number n at n modulo Kept.
type tail struct {
	mu    sync.Mutex // guards what follows
	lines []Line
	next  int64 // number of the last line
}

func (t *tail) add(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	if line := (Line{t.next, *e}); len(t.lines) < Kept {
		t.lines = append(t.lines, line)
	} else {
		t.lines[(t.next-1)%Kept] = line
	}
}

// Tail returns the last lines of those behind a number, at most limit, the oldest first, and the number of the
// oldest line that is kept; 0: there is none.
func (l *Log) Tail(after int64, limit int) (lines []Line, oldest int64) {
	if l == nil {
		return nil, 0
	}
	t := &l.last
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 {
		return nil, 0
	}
	oldest = max(1, t.next-Kept+1)
	for n := max(after+1, oldest, t.next-int64(limit)+1); n <= t.next; n++ {
		lines = append(lines, t.lines[(n-1)%Kept])
	}
	return lines, oldest
}
