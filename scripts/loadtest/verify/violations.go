package verify

import "sync"

// maxViolations bounds the sentences that are kept; all are counted.
const maxViolations = 100

// violations collects what is wrong. Its methods may be called by any goroutine.
type violations struct {
	mu        sync.Mutex // guards what follows
	sentences []string
	count     int64
}

// add keeps a sentence; "" is none.
func (v *violations) add(sentence string) {
	if sentence == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	if len(v.sentences) < maxViolations {
		v.sentences = append(v.sentences, sentence)
	}
}

// all returns the sentences that were kept and how many there were.
func (v *violations) all() ([]string, int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.sentences...), v.count
}
