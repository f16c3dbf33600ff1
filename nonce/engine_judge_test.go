package nonce_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// said is an op with what its caller was told, and when.
type said struct {
	op          *nonce.Op
	node        string
	sent, heard time.Time
	result      string
}

func (s said) String() string {
	return fmt.Sprintf("%s %v..%v %v %s %d#%d id=%q: %s", s.node, clockTime(s.sent), clockTime(s.heard), s.op.Kind, s.op.Signer, s.op.Nonce, s.op.Attempt, s.op.RequestID, s.result)
}

func clockTime(t time.Time) string { return t.Format("05.000000") }

// judge keeps what all clients were told, and says what must not have been.
type judge struct {
	mu  sync.Mutex // guards all
	all []said
}

func (j *judge) hear(s said) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, s)
}

// given is one answered hand-out of one nonce.
type given struct {
	said
	handOut
	until time.Time // as its holder counts, or by the deadline it was told, whichever is later
}

// handOuts are the answered hand-outs of each nonce, in the order of their answers.
func (j *judge) handOuts() map[handOut][]given {
	out := map[handOut][]given{}
	for _, s := range j.all {
		if s.op.Kind != nonce.KindAllocate || s.op.Err != nil {
			continue
		}
		for i, n := range s.op.Nonces {
			until := s.sent.Add(s.op.HoldLeft)
			if s.op.HeldUntil.After(until) {
				until = s.op.HeldUntil
			}
			key := handOut{s.op.Signer, n, 0}
			out[key] = append(out[key], given{s, handOut{s.op.Signer, n, s.op.Attempts[i]}, until})
		}
	}
	return out
}

// marks are the marks of each nonce and attempt.
func (j *judge) marks() map[handOut][]said {
	out := map[handOut][]said{}
	for _, s := range j.all {
		if s.op.Kind == nonce.KindMarkUsed || s.op.Kind == nonce.KindMarkRecyclable {
			key := handOut{s.op.Signer, s.op.Nonce, s.op.Attempt}
			out[key] = append(out[key], s)
		}
	}
	return out
}

// storeTick is what the store's clock is cut to.
const storeTick = time.Microsecond

// verdict lists what must not have been said.
func (j *judge) verdict() (wrong []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.SortStableFunc(j.all, func(a, b said) int { return a.heard.Compare(b.heard) })
	marks, consumed := j.marks(), map[handOut]said{}
	for _, s := range j.all {
		if over := s.sent.Add(s.op.HoldLeft).Sub(s.op.HeldUntil); s.op.Err == nil && over > storeTick && s.op.Kind == nonce.KindAllocate {
			wrong = append(wrong, fmt.Sprintf("more was said to be left of a hold, %v, than until its deadline, %v:\n  %v", s.op.HoldLeft, clockTime(s.op.HeldUntil), s))
		}
		if s.op.Kind == nonce.KindMarkUsed && s.op.Err == nil {
			key := handOut{s.op.Signer, s.op.Nonce, 0}
			if was, ok := consumed[key]; ok && was.op.TxHash != s.op.TxHash {
				wrong = append(wrong, fmt.Sprintf("consumed by two:\n  %v\n  %v", was, s))
			} else if !ok {
				consumed[key] = s
			}
		}
	}
	for key, list := range j.handOuts() {
		for i, b := range list {
			for _, a := range list[:i] {
				wrong = append(wrong, twoHolders(a, b, marks)...)
			}
			if used, ok := consumed[key]; ok && b.heard.After(used.heard) && b.until.After(b.heard) && b.attempt != used.op.Attempt {
				wrong = append(wrong, fmt.Sprintf("handed out after it was consumed:\n  %v\n  %v", used, b.said))
			}
		}
	}
	return append(wrong, j.requests()...)
}

// twoHolders judges two answered hand-outs of one nonce.
func twoHolders(a, b given, marks map[handOut][]said) []string {
	if a.attempt == b.attempt {
		if a.op.RequestID != "" && a.op.RequestID == b.op.RequestID {
			return nil
		}
		return []string{fmt.Sprintf("one attempt given twice, %d#%d:\n  %v\n  %v", a.nonce, a.attempt, a.said, b.said)}
	}
	if a.live(b, marks) {
		text := fmt.Sprintf("two holders, %d#%d until %v and #%d until %v:\n  %v\n  %v", a.nonce, a.attempt, clockTime(a.until), b.attempt, clockTime(b.until), a.said, b.said)
		for _, m := range marks[a.handOut] {
			text += fmt.Sprintf("\n  %v", m)
		}
		return []string{text}
	}
	return nil
}

// live reports whether there was a moment when both were held and both answered.
func (a given) live(b given, marks map[handOut][]said) bool {
	from := latestOf(a.heard, b.heard)
	return from.Before(a.end(marks)) && from.Before(b.end(marks))
}

func latestOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// end is when the hold ended: its deadline, or when a mark was sent that was not
// refused.
func (a given) end(marks map[handOut][]said) time.Time {
	end := a.until
	for _, m := range marks[a.handOut] {
		ended := m.op.Err == nil || m.result == "unknown"
		if ended && m.sent.Before(end) {
			end = m.sent
		}
	}
	return end
}

// requests judges request ids: one id, one answer, as long as nothing was lost.
func (j *judge) requests() (wrong []string) {
	type id struct{ signer, request string }
	first := map[id]said{}
	for _, s := range j.all {
		if s.op.Kind != nonce.KindAllocate || s.op.RequestID == "" || s.op.Err != nil {
			continue
		}
		was, ok := first[id{s.op.Signer, s.op.RequestID}]
		if !ok {
			first[id{s.op.Signer, s.op.RequestID}] = s
			continue
		}
		same := slices.Equal(was.op.Nonces, s.op.Nonces) && slices.Equal(was.op.Attempts, s.op.Attempts)
		if !same && epochOf(was.op) == epochOf(s.op) {
			wrong = append(wrong, fmt.Sprintf("one request, two answers:\n  %v\n  %v", was, s))
		}
	}
	return wrong
}

// epochOf is the epoch that the attempts of a hand-out are of.
func epochOf(op *nonce.Op) int64 { return op.Attempts[0] >> 20 }
