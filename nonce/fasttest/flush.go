package fasttest

import (
	"context"
	"slices"
	"time"

	"noncegate/nonce"
)

// Flusher lets the store follow a server's events when a test says so.
type Flusher struct {
	Ledger nonce.EngineLedger
	TTL    time.Duration
	// Accepted reports whether events of a server may be applied. nil: all.
	Accepted func(nonce.Identity) bool
	// Flushed is told of what was committed. It may be nil.
	Flushed func(signer string, version int64)
}

// Flush applies at most the first most events, those of one signer merged into one,
// in one call of the store. It returns how many are not to be read again. An event
// that meets a locked row, or one that is behind, stays, and all of its signer
// behind it.
func (f *Flusher) Flush(ctx context.Context, s *Server, most int) (int, error) {
	read, identity := s.head(most)
	if len(read) == 0 || f.Accepted != nil && !f.Accepted(identity) {
		return 0, nil
	}
	batch := Merge(read)
	verdicts, err := f.Ledger.Apply(ctx, f.TTL, batch)
	if err != nil {
		return 0, err
	}
	done := map[string]int64{}
	for i, v := range verdicts {
		if e := &batch[i]; v == nonce.FlushApplied || v == nonce.FlushAlready || v == nonce.FlushOver {
			done[e.Signer] = e.To
			if f.Flushed != nil && v != nonce.FlushOver {
				f.Flushed(e.Signer, e.To)
			}
		} else if v == nonce.FlushPartly {
			if n, err := f.oneByOne(ctx, read, e.Signer); err != nil || n > 0 {
				done[e.Signer] = n
			}
		}
	}
	return s.ack(read, done), nil
}

// oneByOne applies the events of one signer, some of which are applied already, and
// returns the version of the last that need not be read again.
func (f *Flusher) oneByOne(ctx context.Context, read []nonce.FlushEvent, signer string) (last int64, err error) {
	for _, e := range read {
		if e.Signer != signer {
			continue
		}
		v, err := f.Ledger.Apply(ctx, f.TTL, []nonce.FlushEvent{e})
		if err != nil || v[0] != nonce.FlushApplied && v[0] != nonce.FlushAlready && v[0] != nonce.FlushOver {
			return last, err
		}
		if last = e.To; f.Flushed != nil && v[0] != nonce.FlushOver {
			f.Flushed(signer, e.To)
		}
	}
	return last, nil
}

// head reads the first events of the stream.
func (s *Server) head(most int) ([]nonce.FlushEvent, nonce.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data.stream[:min(most, len(s.data.stream))]), s.identity
}

// ack removes the events read that are done, and the CONSUMED rows that the store
// has now.
func (s *Server) ack(read []nonce.FlushEvent, done map[string]int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := len(s.data.stream)
	acked := func(e nonce.FlushEvent) bool {
		return slices.ContainsFunc(read, func(r nonce.FlushEvent) bool {
			return r.Signer == e.Signer && r.To == e.To && r.At.Equal(e.At) && r.Token == e.Token
		}) && e.To <= done[e.Signer]
	}
	s.data.stream = slices.DeleteFunc(s.data.stream, acked)
	for signer, version := range done {
		e := s.data.signers[signer]
		if e == nil {
			continue
		}
		for n, r := range e.rows {
			if r.Status == nonce.Consumed && r.version <= version && nonce.EpochOf(r.version) == nonce.EpochOf(version) {
				delete(e.rows, n)
			}
		}
	}
	return was - len(s.data.stream)
}

// Merge makes one event of the consecutive ones of each signer, in order, as far as
// that can be: the rest of a signer is for another call.
func Merge(events []nonce.FlushEvent) []nonce.FlushEvent {
	var out []nonce.FlushEvent
	at := map[string]int{}
	for _, e := range events {
		i, ok := at[e.Signer]
		switch {
		case !ok:
			at[e.Signer] = len(out)
			e.Rows, e.Requests = slices.Clone(e.Rows), slices.Clone(e.Requests)
			out = append(out, e)
		case out[i].To == e.From && fits(&out[i], &e):
			out[i] = merge(&out[i], &e)
		}
	}
	return out
}

// fits reports whether the store may see b together with a: it must see what a repair
// has handed out as that, before anything else becomes of it.
func fits(a, b *nonce.FlushEvent) bool {
	return !slices.ContainsFunc(b.Rows, func(r nonce.FlushRow) bool {
		return slices.ContainsFunc(a.Rows, func(o nonce.FlushRow) bool {
			return o.Nonce == r.Nonce && (o.Status == nonce.Consumed || o.Reason == nonce.ReasonRepair)
		})
	})
}

// merge puts b behind a. A floor of b takes what a released below it.
func merge(a, b *nonce.FlushEvent) nonce.FlushEvent {
	m := *b
	m.From, m.BelowFloor = a.From, a.BelowFloor || b.BelowFloor
	m.Rows, m.Requests = a.Rows, append(a.Requests, b.Requests...)
	if b.BelowFloor {
		for i := range m.Rows {
			if r := &m.Rows[i]; r.Status == nonce.Released && r.Nonce < b.Floor {
				r.Status, r.Reason, r.Token = nonce.Consumed, nonce.ReasonBelowFloor, b.Token
			}
		}
	}
	for _, r := range b.Rows {
		i := slices.IndexFunc(m.Rows, func(o nonce.FlushRow) bool { return o.Nonce == r.Nonce })
		if i < 0 {
			m.Rows = append(m.Rows, r)
			continue
		}
		r.Fresh = m.Rows[i].Fresh
		m.Rows[i] = r
	}
	return m
}
