package service

// Forwarding is of how many signers the service remembers that something was sent elsewhere.
func (s *Service) Forwarding() (n int) {
	for _, w := range s.workers {
		w.batchMu.Lock()
		n += len(w.remote.all)
		w.batchMu.Unlock()
	}
	return n
}

// Halt refuses everything from now on.
func (s *Service) Halt(reason error) { s.halt(reason) }
