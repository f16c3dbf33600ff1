package nonce

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
)

// What the stores of signers as one row each have in common.

// StoredSigner is a signer's row as a store reads it for lists and figures.
type StoredSigner struct {
	Name  string
	Shard int
	Signer
	Watch Watch
	Err   error // an ErrLive; it has no Live then
}

// listPiece is how many signers a list looks at before it asks for more.
const listPiece = 1000

// Collect makes a list of signers from pieces: piece returns signers after a name in order,
// no more than limit. serving has the node of each shard. It looks at no more than
// TotalsBound signers.
func (q *SignersQuery) Collect(
	now int64, serving []string, piece func(after string, limit int) ([]StoredSigner, error),
) ([]SignerFigures, error) {
	var out []SignerFigures
	size := listPiece
	if q.Filter == AllSigners {
		size = q.Limit
	}
	after := q.After
	for seen := 0; seen < TotalsBound; seen += size {
		rows, err := piece(after, size)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			r := &rows[i]
			after = r.Name
			if q.Filter != AllSigners && (r.Err != nil || !q.Filter.Wants(&r.Signer, &r.Watch, now)) {
				continue
			}
			f := r.Figures()
			f.Signer, f.Owner, f.Watch, f.Unreadable = r.Name, serving[r.Shard], r.Watch, r.Err != nil
			out = append(out, f)
			if len(out) == q.Limit {
				return out, nil
			}
		}
		if len(rows) < size {
			break
		}
	}
	return out, nil
}

const (
	// totalsPiece is how many keys of signers are looked at in one statement.
	totalsPiece = 5000
	// totalsPieces is how many of these one call of Totals looks at.
	totalsPieces = TotalsBound / totalsPiece
)

// TotalsWalk counts what is open in a whole store, in order of the signers' keys. Where
// there are more than TotalsBound of them it takes several calls: what it returns is as old
// as the last walk that came to the end.
type TotalsWalk struct {
	mu        sync.Mutex // guards all below; it is held while the store is read
	after     int64      // the key up to which this walk has come
	sum, last Totals
	complete  bool // last is of a whole walk
}

// Next goes on. piece calls each for those of the signers after a key, up to and with
// another, of which something is open, and reports whether there are keys beyond.
func (w *TotalsWalk) Next(now int64, piece func(after, to int64, each func(*StoredSigner)) (more bool, err error)) (Totals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range totalsPieces {
		var sum Totals
		more, err := piece(w.after, w.after+totalsPiece, func(s *StoredSigner) {
			if s.Err != nil {
				sum.Unreadable++
				return
			}
			sum.Add(&s.Signer, now)
		})
		if err != nil {
			return Totals{}, err
		}
		w.sum.join(&sum)
		w.after += totalsPiece
		if !more {
			w.last, w.complete = w.sum, true
			w.sum, w.after = Totals{}, 0
			return w.last, nil
		}
	}
	if !w.complete {
		return w.sum, nil
	}
	return w.last, nil
}

// join adds what a part of the store has.
func (t *Totals) join(o *Totals) {
	t.Held = min(t.Held+o.Held, TotalsBound)
	t.Unknown = min(t.Unknown+o.Unknown, TotalsBound)
	t.Released = min(t.Released+o.Released, TotalsBound)
	t.Repeated = min(t.Repeated+o.Repeated, TotalsBound)
	t.OldestOverdue = max(t.OldestOverdue, o.OldestOverdue)
	t.Unreadable += o.Unreadable
}

// ListedRequests is how many of a signer's request ids List looks at to name those of a
// page. Of a signer that has more, some rows come without.
const ListedRequests = 10_000

// PackNonces is what the request got as stores keep it: [[nonce, attempt], ...].
func (q *Remembered) PackNonces() string {
	b := []byte{'['}
	for i, n := range q.Nonces {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '['), n, 10)
		b = append(strconv.AppendInt(append(b, ','), q.Attempts[i], 10), ']')
	}
	return string(append(b, ']'))
}

// UnpackNonces reads what PackNonces returned.
func (q *Remembered) UnpackNonces(text []byte) error {
	var pairs [][2]int64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return fmt.Errorf("what request id %s got: %w", q.ID, err)
	}
	q.Nonces, q.Attempts = make([]int64, len(pairs)), make([]int64, len(pairs))
	for i, p := range pairs {
		q.Nonces[i], q.Attempts[i] = p[0], p[1]
	}
	return nil
}
