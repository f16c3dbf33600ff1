package events

// subscriptionIndex are the subscriptions of clients, or of other nodes. The hub's lock guards them.
type subscriptionIndex struct {
	all      map[*Subscription]struct{}
	bySigner map[string]map[*Subscription]struct{}
	edition  uint64 // grows whenever a signer comes into bySigner or leaves it
}

func newSubscriptionIndex() subscriptionIndex {
	return subscriptionIndex{all: make(map[*Subscription]struct{}), bySigner: make(map[string]map[*Subscription]struct{})}
}

// any reports whether anybody wants events of the signer.
func (w *subscriptionIndex) any(signer string) bool {
	return len(w.all) > 0 || len(w.bySigner[signer]) > 0
}

// add notes a subscription to the signers, or to all when none is named, and in s
// for which: each once.
func (w *subscriptionIndex) add(s *Subscription, signers []string) {
	if len(signers) == 0 {
		w.all[s] = struct{}{}
	}
	for _, signer := range signers {
		wanting := w.bySigner[signer]
		if wanting == nil {
			wanting = make(map[*Subscription]struct{})
			w.bySigner[signer] = wanting
			w.edition++
		}
		if _, twice := wanting[s]; !twice {
			wanting[s] = struct{}{}
			s.signers = append(s.signers, signer)
		}
	}
}

// remove forgets a subscription that was added.
func (w *subscriptionIndex) remove(s *Subscription) {
	delete(w.all, s)
	for _, signer := range s.signers {
		delete(w.bySigner[signer], s)
		if len(w.bySigner[signer]) == 0 {
			delete(w.bySigner, signer)
			w.edition++
		}
	}
}

// everything reports whether it takes a subscription to all signers to serve all
// subscriptions.
func (w *subscriptionIndex) everything() bool { return len(w.all) > 0 || len(w.bySigner) > MaxSigners }

// sum is a fingerprint of the subscriptions: equal sums are of equal ones.
func (w *subscriptionIndex) sum() (all bool, edition uint64) {
	if w.everything() {
		return true, 0
	}
	return false, w.edition
}
