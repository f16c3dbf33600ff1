package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
)

// edit builds a change on what a snapshot says, keeping Next and Held right.
type edit struct {
	nonce.Change
	given int // how many of Rows have had their request id
}

// on begins a change that believes the snapshot.
func on(s nonce.Snapshot) *edit {
	return &edit{Change: nonce.Change{
		ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version, Next: s.Next, Floor: s.Floor, Held: s.Held,
	}}
}

// hold hands out n new nonces.
func (e *edit) hold(n int, d time.Duration) *edit {
	for range n {
		e.row(nonce.RowChange{Nonce: e.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: d})
		e.Next++
		e.Held++
	}
	return e
}

// again hands out a released nonce whose attempt was from.
func (e *edit) again(n, from int64, d time.Duration) *edit {
	e.Held++
	return e.row(nonce.RowChange{
		Nonce: n, FromStatus: nonce.Released, FromAttempt: from, Status: nonce.Held, Attempt: from + 1, Hold: d,
	})
}

// end ends the hold of a nonce at its attempt.
func (e *edit) end(n, attempt int64, status nonce.Status) *edit {
	e.Held--
	rc := nonce.RowChange{Nonce: n, FromStatus: nonce.Held, FromAttempt: attempt, Status: status, Attempt: attempt}
	if status == nonce.Consumed {
		rc.TxHash = nonce.TxHash{0: 0xab, 31: byte(n)}
	} else {
		rc.Reason = "given back"
	}
	return e.row(rc)
}

// release ends the holds of nonces at attempt 1.
func (e *edit) release(nonces ...int64) *edit {
	for _, n := range nonces {
		e.end(n, 1, nonce.Released)
	}
	return e
}

// raise raises the floor, and next with it.
func (e *edit) raise(floor int64) *edit {
	e.Floor, e.Next, e.BelowFloor = floor, max(e.Next, floor), true
	return e
}

// asked makes the nonces handed out since the last call the answer to a request
// id.
func (e *edit) asked(id string) *edit {
	r := nonce.Request{ID: id, Hash: [16]byte{0: 1, 15: byte(len(id))}}
	for _, rc := range e.Rows[e.given:] {
		if goesOn := rc.FromStatus == nonce.Held && rc.FromAttempt == rc.Attempt; rc.Status == nonce.Held && !goesOn {
			r.Nonces, r.Attempts = append(r.Nonces, rc.Nonce), append(r.Attempts, rc.Attempt)
		}
	}
	e.Requests, e.given = append(e.Requests, r), len(e.Rows)
	return e
}

func (e *edit) row(rc nonce.RowChange) *edit {
	e.Rows = append(e.Rows, rc)
	return e
}

// printed is a value as tests compare it: without the store's clock, rows in
// order, times to the microsecond.
func printed(v any) string {
	switch v := v.(type) {
	case nonce.Snapshot:
		v.Now, v.Acquired = time.Time{}, false
		v.Lease.ExpiresAt = exact(v.Lease.ExpiresAt)
		v.GrantUntil, v.DoubtUntil = exact(v.GrantUntil), exact(v.DoubtUntil)
		v.Rows, v.Due = inOrder(v.Rows), exactly(v.Due)
		slices.SortFunc(v.Requests, func(a, b nonce.Request) int { return cmp.Compare(a.ID, b.ID) })
		return fmt.Sprintf("%+v", v)
	case nonce.Standing:
		v.GrantUntil, v.DoubtUntil = exact(v.GrantUntil), exact(v.DoubtUntil)
		return fmt.Sprintf("%+v", v)
	case []nonce.Row:
		return fmt.Sprintf("%+v", exactly(v))
	}
	return fmt.Sprintf("%+v", v)
}

func inOrder(rows []nonce.Row) []nonce.Row {
	rows = exactly(rows)
	slices.SortFunc(rows, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return rows
}

func exactly(rows []nonce.Row) []nonce.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].HeldUntil, rows[i].UpdatedAt = exact(rows[i].HeldUntil), exact(rows[i].UpdatedAt)
	}
	return rows
}

// exact is a time without a location or a monotonic reading, to the microsecond.
func exact(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
