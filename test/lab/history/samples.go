package history

// checkSamples: in the store itself token, version, cursor and floor never go back, nothing is acquired or given back without a
// higher token, and nothing is written under a token when there is a higher one. No nonce lives and is in the history.
func (s *signer) checkSamples(r *Report) {
	for _, is := range s.samples {
		if len(is.Both) > 0 {
			r.add(Hole, s.name, "nonces %v live and are in the history at %v", is.Both, is.At)
		}
	}
	for i := 1; i < len(s.samples); i++ {
		was, is := s.samples[i-1], s.samples[i]
		switch {
		case is.Version > was.Version && is.Written > 0 && is.Written < was.Token:
			r.add(tokenBack, s.name, "version %d was written under token %d when the token was %d, at %v", is.Version, is.Written, was.Token, is.At)
		case is.Token < was.Token:
			r.add(tokenBack, s.name, "the row's token was %d and is %d at %v", was.Token, is.Token, is.At)
		case is.Version < was.Version:
			r.add(tokenBack, s.name, "the row's version was %d and is %d at %v", was.Version, is.Version, is.At)
		case is.Next < was.Next:
			r.add(tokenBack, s.name, "the row's cursor was %d and is %d at %v", was.Next, is.Next, is.At)
		case is.Floor < was.Floor:
			r.add(tokenBack, s.name, "the row's floor was %d and is %d at %v", was.Floor, is.Floor, is.At)
		case (is.Owner != was.Owner || is.Incarnation != was.Incarnation) && is.Token <= was.Token:
			r.add(tokenBack, s.name, "%q acquired it, or it was given back, under token %d, which %q had", is.Owner, is.Token, was.Owner)
		}
	}
}
