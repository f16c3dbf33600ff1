package history

// checkSamples: in the store itself token, version, cursor and floor never go
// back, and no lease is acquired without a higher token.
func (s *signer) checkSamples(r *Report) {
	for i := 1; i < len(s.samples); i++ {
		was, is := s.samples[i-1], s.samples[i]
		switch {
		case is.Token < was.Token:
			r.add(TokenBack, s.name, "the row's token was %d and is %d at %v", was.Token, is.Token, is.At)
		case is.Version < was.Version:
			r.add(TokenBack, s.name, "the row's version was %d and is %d at %v", was.Version, is.Version, is.At)
		case is.Next < was.Next:
			r.add(TokenBack, s.name, "the row's cursor was %d and is %d at %v", was.Next, is.Next, is.At)
		case is.Floor < was.Floor:
			r.add(TokenBack, s.name, "the row's floor was %d and is %d at %v", was.Floor, is.Floor, is.At)
		case is.AcquiredAt != was.AcquiredAt && is.Token <= was.Token:
			r.add(TokenBack, s.name, "%s acquired the lease under token %d, which %s had", is.Owner, is.Token, was.Owner)
		}
	}
}
