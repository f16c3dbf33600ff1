package nonce

// Slot is a slot in the stage that runs a signer's requests. It is used once, by Submit
// of the service that gave it, or by Cancel.
type Slot struct {
	Queue Queue // nil: mode basic
	Of    Principal
	Held  bool // false: caller-runs beyond the queue's capacity
	// Events says that a slot of the EventSink is reserved for what the request changes. Submit
	// takes it over, Cancel does not give it back.
	Events bool
}

// Queue is a stage that gives slots.
type Queue interface {
	// Leave gives back a slot that a principal had.
	Leave(of Principal)
}

// Cancel gives an unused slot back. It may be called again.
func (s *Slot) Cancel() {
	if s.Held {
		s.Held = false
		s.Queue.Leave(s.Of)
	}
}
