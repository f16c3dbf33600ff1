package endpoint

import (
	"context"
	"time"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

const (
	// recordTries is how often a record is tried that is refused although nothing speaks
	// against it.
	recordTries = 4
	fencedPause = 50 * time.Millisecond
)

// record puts the hash of the transaction into the record of its nonce. nil: it is
// committed, and the transaction may be sent. Nonces ahead of the next one wait for those
// before them: for OrderWait, and for sendTimeout at most while one of them is on its way here.
func (s *sending) record(ctx context.Context) *wire.Error {
	enough, longest := time.NewTimer(s.e.cfg.OrderWait), time.Now().Add(sendTimeout)
	defer enough.Stop()
	var counted <-chan time.Time // a timer that runs while the gateway waits for the count to rise
	last := false
	for tries := 1; ; tries++ {
		changed := s.line.changed()
		mark := s.mark()
		r, err := s.call.Do(mark)
		if err == nil {
			if s.attempt = r.Attempt; len(r.Earlier) > 0 {
				s.earlier = r.Earlier[0]
			}
			s.old = r.Status == nonce.Consumed && r.Replaced == nonce.TxHash{}
			s.line.tell()
			return nil
		}
		when := s.retryable(ctx, err, mark.Take)
		switch {
		case when == retryCount:
			if counted == nil {
				counted = time.After(s.e.cfg.CountWait)
			}
			s.call.Pass()
			select {
			case <-counted:
				return err
			default:
				pause(ctx, lookEvery)
			}
			tries = 0
		case when == retryNever, when == retryNow && tries >= recordTries,
			when == retryLater && last && (!s.line.lower(s.tx) || time.Now().After(longest)):
			return err
		case when == retryNow:
			pause(ctx, fencedPause)
		default:
			s.call.Pass() // those that it waits for may be behind it on this connection
			last = s.awaitOthers(ctx, changed, enough.C) || last
			tries = 0
		}
		if ctx.Err() != nil {
			return errGone()
		}
	}
}

// lookEvery is how often it is looked whether a transaction's turn has come: those before
// it may have come to another node of the gateway.
const lookEvery = 100 * time.Millisecond

// awaitOthers waits until it may be the transaction's turn. last: it has waited enough.
func (s *sending) awaitOthers(ctx context.Context, changed <-chan struct{}, enough <-chan time.Time) (last bool) {
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	select {
	case <-changed:
	case <-look.C:
	case <-ctx.Done():
	case <-enough:
		return true
	}
	return false
}

// retry is whether, and when, a record that was refused may succeed when it is tried again.
type retry uint8

const (
	retryNever retry = iota
	retryNow         // the signer has just moved, or it is the transaction's turn by now
	retryLater       // when others have been recorded
	retryCount       // when the gateway has seen the block that the nodes have
)

func (s *sending) retryable(ctx context.Context, err *wire.Error, take bool) retry {
	switch {
	case err.Code == wire.CodeFenced:
		return retryNow
	case err.Code == wire.CodeHoldLimit && err.Data.Cause == wire.CauseWindow && s.countRose(ctx, err.Data.Limit):
		return retryCount
	case err.Code == wire.CodeConflict && err.Data.Cause == wire.CauseReplacement:
		return s.replace(ctx)
	case err.Code != wire.CodeConflict || !take:
		return retryNever
	}
	next, failed := s.e.free(ctx, s.call, s.signer, s.tx.Account)
	if failed != nil || s.tx.Nonce < next {
		return retryNever
	}
	row, there, failed := rowOf(s.call, s.signer, s.tx.Nonce)
	switch {
	case failed != nil || there && row.Status != nonce.Released:
		return retryNever
	case s.tx.Nonce == next:
		return retryNow
	}
	return retryLater
}

// countRose reports whether nodes say that the account has come so far that the transaction is
// within the window: a client knows a receipt half a block before the gateway counts it.
func (s *sending) countRose(ctx context.Context, window int64) bool {
	start, err := s.e.start(ctx, s.tx.Account)
	return err == nil && s.tx.Nonce < start.Latest+window
}

// replace finds out whether the transaction may replace the one that is recorded for its nonce:
// it does the same, or nothing but use the nonce, or the caller says that it is meant. retryNow:
// it may, and says so from now on.
func (s *sending) replace(ctx context.Context) retry {
	row, there, err := rowOf(s.call, s.signer, s.tx.Nonce)
	switch {
	case err != nil || !there:
		return retryNever
	case row.TxHash == nonce.TxHash{}:
		s.over = row.TxHash // it is not recorded any more
		return retryNow
	case s.tx.Cancels || s.call.Replaces() || s.e.cfg.Replaces != nil && s.e.cfg.Replaces(s.call.Principal()):
	case row.Status == nonce.Held && row.Reason == nonce.ReasonRepair:
	default:
		if !s.sameAs(ctx, &row) {
			return retryNever
		}
	}
	s.over = row.TxHash
	return retryNow
}

// sameAs reports whether the transaction does the same as the newest one recorded that nodes have
// not refused. What one that did not come through the gateway does is not known.
func (s *sending) sameAs(ctx context.Context, row *nonce.Row) bool {
	sent, err := s.e.sentOf(ctx, s.signer, s.tx.Nonce)
	if err != nil {
		return false
	}
	recorded := row.Replaced.Append(row.TxHash)
	for i := recorded.Len() - 1; i >= 0; i-- {
		t := find(sent, s.tx.Nonce, recorded.At(i))
		switch {
		case t == nil:
			return false
		case t.State != nonce.SentRefused:
			return t.Payment == s.tx.Payment
		}
	}
	return true
}

// sentOf reads what is kept of a signer's transactions from a nonce on.
func (e *Endpoint) sentOf(ctx context.Context, signer string, from int64) ([]nonce.Sent, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return e.sent.SentOf(ctx, signer, from)
}

func find(sent []nonce.Sent, n int64, hash nonce.TxHash) *nonce.Sent {
	for i := range sent {
		if sent[i].Nonce == n && sent[i].Hash == hash {
			return &sent[i]
		}
	}
	return nil
}

// mark is the request that records the transaction before it is sent.
func (s *sending) mark() *nonce.Request {
	return &nonce.Request{
		Kind: nonce.KindMarkSigned, Signer: s.signer, Nonce: s.tx.Nonce, TxHash: s.tx.Hash, Forwarded: true, Over: s.over,
		Take:    s.e.cfg.Take && s.call.May(access.RightAllocate, s.signer),
		MarkAny: s.call.May(access.RightMarkAny, s.signer), MaxOpen: s.call.MaxOpen(),
	}
}
