package nonce

// Place is a place in the stage that runs a signer's requests. It is used once, by Submit
// of the service that gave it, or by Cancel.
type Place struct {
	Queue Queue // nil: mode basic
	Of    Principal
	Held  bool // false: caller-runs beyond the queue's capacity
}

// Queue is a stage that gives places.
type Queue interface {
	// Leave gives back a place that a principal had.
	Leave(of Principal)
}

// Cancel gives an unused place back.
func (p Place) Cancel() {
	if p.Held {
		p.Queue.Leave(p.Of)
	}
}
