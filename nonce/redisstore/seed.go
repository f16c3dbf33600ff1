package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"noncegate/nonce"
)

// Seed implements nonce.Fast. A piece that is not done means to begin the copy anew
// with its first piece. What still arrives of the old copy is refused; but its first
// piece, where both are of one version, undoes the new one, whose next is refused then.
func (s *Store) Seed(ctx context.Context, piece nonce.SeedPiece) (nonce.Identity, nonce.FastResult) {
	answers := s.run(ctx, "seed", []call{s.seed(&piece)})
	var r nonce.FastResult
	r.Verdict, r.Err = answers[0].verdict(nonce.Identity{}, piece.Signer)
	return answers[0].server, r
}

func (s *Store) seed(p *nonce.SeedPiece) call {
	k := s.keys(p.Signer)
	var sets, hold, free []any
	for i := range p.Rows {
		row := &p.Rows[i]
		n := num(row.Nonce)
		switch row.Status {
		case nonce.Held:
			sets = append(sets, n, rowText(row, p.Version))
			hold = append(hold, num(row.HeldUntil.UnixMicro()), n)
		case nonce.Released:
			sets = append(sets, n, rowText(row, p.Version))
			free = append(free, "0", padded(row.Nonce))
		}
	}
	keys := []string{k.rows, k.held, k.released}
	args := []any{
		belief(p.ID, p.Token, p.Version), strconv.Itoa(p.Nth), flag(p.Last),
		num(p.Held), " " + num(p.Next) + " " + num(p.Floor),
	}
	for _, group := range [][]any{sets, hold, free} {
		args = append(append(args, strconv.Itoa(len(group))), group...)
	}
	for i := range p.Requests {
		r := &p.Requests[i]
		keys = append(keys, k.request(p.Version, r.ID))
		args = append(args, requestValue(&r.Request), num(s.left(r.At, p.Now)))
	}
	return call{script: seedScript, keys: keys, args: args}
}

// left is for how many milliseconds a request id is still kept; at least one, for
// none would be for good. Without a clock it is kept as long as a new one.
func (s *Store) left(at, now time.Time) int64 {
	keep := s.cfg.Retention
	if keep > 0 && !now.IsZero() {
		keep = min(keep, max(keep-now.Sub(at), time.Millisecond))
	}
	return keep.Milliseconds()
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Forget implements nonce.Fast. A signer of a higher token is left alone, which is
// no error. Request ids are not forgotten: their retention ends them.
func (s *Store) Forget(ctx context.Context, signers []nonce.FastBelief) error {
	calls := make([]call, len(signers))
	for i := range signers {
		k := s.keys(signers[i].Signer)
		calls[i] = call{script: forgetScript, keys: []string{k.rows, k.held, k.released}, args: []any{num(signers[i].Token)}}
	}
	var errs []error
	answers := s.run(ctx, "forget", calls)
	for i := range answers {
		verdict, err := answers[i].verdict(nonce.Identity{}, signers[i].Signer)
		if verdict != nonce.FastDone && verdict != nonce.FastFenced {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget signers in Redis: %w", err)
	}
	return nil
}
