package history

import "strings"

// withAgain returns the history as it is judged. A node that was not answered, by another node or by the store, asks again by the
// request id. When the first try was done, and its hold has ended before the second, the client's only call is told so: a conflict,
// which does not say that nothing happened. Such a call is one of unknown outcome.
func (h *History) withAgain() *History {
	first := make(map[[2]string]*Call) // the first call of a request id that may have happened
	for i := range h.Calls {
		c := &h.Calls[i]
		id := [2]string{c.Signer, c.RequestID}
		if c.Kind == Allocate && c.RequestID != "" && c.Outcome != Refused && (first[id] == nil || c.Start < first[id].Start) {
			first[id] = c
		}
	}
	judged := *h
	judged.Calls = append([]Call(nil), h.Calls...)
	for i := range judged.Calls {
		c := &judged.Calls[i]
		f := first[[2]string{c.Signer, c.RequestID}]
		ended := c.Kind == Allocate && c.Outcome == Refused && c.Reason == "conflict" && strings.Contains(c.Detail, "has ended")
		if ended && (f == nil || f.Start > c.End) {
			c.Outcome, c.Reason = Unknown, "conflict of its own"
		}
	}
	return &judged
}
