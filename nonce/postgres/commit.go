package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"noncegate/lease"
	"noncegate/nonce"
)

// Commit implements nonce.Store. A row that somebody else writes is waited for at first,
// for as long as a lock may take; then all such rows are left out, also by the commits of
// the next second.
func (s *Store) Commit(ctx context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	out, err := s.Ship(ctx, h, nonce.Shipment{Writes: writes})
	return out.Committed, err
}

// Ship implements nonce.LogStore.
func (s *Store) Ship(ctx context.Context, h lease.Holder, what nonce.Shipment) (nonce.Shipped, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nonce.Shipped{}, err
	}
	defer conn.Release()
	generation := conn.Conn().PgConn().CustomData()[generationKey]
	if slices.ContainsFunc(what.Writes, func(w nonce.Write) bool { return w.Generation != generation }) || len(what.Shards) > 0 && what.Generation != generation {
		return nonce.Shipped{}, notSent("commit", errGeneration)
	}
	var f form
	if time.Now().UnixNano() < s.locksUntil.Load() {
		f = formSkipLocked
	}
	out, err := s.commit(ctx, conn, f, h, what)
	if err != nil && f == 0 && lockedByOthers(err) {
		s.locksUntil.Store(time.Now().Add(leaveLocked).UnixNano())
		out, err = s.commit(ctx, conn, formSkipLocked, h, what)
	}
	switch {
	case err != nil:
		return nonce.Shipped{}, storeError("commit", err)
	case syncRepCancelled(conn.Conn().PgConn()):
		return nonce.Shipped{}, errSyncRep
	}
	return out, nil
}

// leaveLocked is how long after a commit that had to be done twice the next ones leave rows out
// at once that somebody else writes. Every batch would else be done twice because of one outsider.
const leaveLocked = time.Second

// commit runs the statement of the form that the writes need, with f: 0, formSkipLocked or formBasic.
func (s *Store) commit(ctx context.Context, conn *pgxpool.Conn, f form, h lease.Holder, what nonce.Shipment) (nonce.Shipped, error) {
	writes := what.Writes
	if len(what.Shards) > 0 {
		f |= formIDs | formAll | formShips
	}
	p := packedOf(conn.Conn().PgConn())
	p.pack(f, s.shards, writes)
	if len(what.Shards) > 0 {
		p.ship(what.Shards)
	}
	a, err := p.run(ctx, conn.Conn(), h, what.Grant)
	if err != nil {
		return nonce.Shipped{}, err
	}
	out := nonce.Shipped{Committed: nonce.Committed{Now: time.UnixMilli(a.now), Results: make([]nonce.WriteResult, len(writes))}}
	for _, sh := range what.Shards {
		out.Granted = append(out.Granted, slices.Contains(a.granted, int64(sh.Term.Shard)))
		out.Whole = append(out.Whole, slices.Contains(a.whole, int64(sh.Term.Shard)))
	}
	for _, i := range a.applied {
		out.Results[i] = nonce.Applied
	}
	var asking []int
	for i := range writes {
		switch b := a.beliefs[p.places[i]-1]; {
		case b == notMine || f&formBasic == 0 && b != belief(writes[i].Term) || f&formBasic != 0 && b%2 != 0:
			out.Results[i] = nonce.NotOwner
		case out.Results[i] == nonce.Applied:
		case writes[i].NotBefore > a.now:
			out.Results[i] = nonce.TooEarly
		default:
			out.Results[i] = nonce.Moved
			if len(writes[i].Requests) > 0 {
				asking = append(asking, i)
			}
		}
	}
	if err := findKnown(ctx, conn, writes, asking, out.Results); err != nil && f&formBasic != 0 {
		return nonce.Shipped{}, err
	} // else the commit stands; a write whose request id is known is told Moved, and read again
	return out, nil
}

// answer is what the statement of a commit said.
type answer struct {
	now            int64
	beliefs        []int64 // for each of the shards the belief that the store found, or notMine
	applied        []int   // the places of writes that were applied, or are as they are believed
	granted, whole []int64 // shards
}

// notMine is the belief of a shard that the node does not own.
const notMine = -1

// inBinary is the format of all that a commit sends and is sent.
var inBinary = []int16{pgx.BinaryFormatCode}

// run runs the statement. It goes below pgx, which would put the parameters together twice, each time
// in memory of its own.
func (p *packed) run(ctx context.Context, conn *pgx.Conn, h lease.Holder, g nonce.Grant) (*answer, error) {
	statement, err := conn.Prepare(ctx, p.form.name(), commitText(p.form)) // does nothing when it is prepared
	if err != nil {
		return nil, err
	}
	p.params(h, g)
	conn.PgConn().Frontend().Send(&p.message)
	w := watchedOf(conn.PgConn())
	result := conn.PgConn().ExecStatement(w.begin(ctx), statement, p.values, inBinary, inBinary)
	found, read := false, error(nil)
	for result.NextRow() {
		found, read = true, p.read(result.Values())
	}
	_, err = result.Close()
	if err = w.end(err); err == nil && !found {
		err = pgx.ErrNoRows
	}
	return &p.answer, cmp.Or(err, read)
}

// read reads the one row of the answer.
func (p *packed) read(row [][]byte) error {
	a := &p.answer
	a.beliefs, a.applied, a.granted, a.whole = a.beliefs[:0], a.applied[:0], a.granted[:0], a.whole[:0]
	if len(row) < 4 || len(row[0]) != 8 {
		return errArray
	}
	a.now = int64(be.Uint64(row[0])) // #nosec G115 -- as it was sent
	err := eachInt(row[1], func(b int64, null bool) {
		if null {
			b = notMine
		}
		a.beliefs = append(a.beliefs, b)
	})
	step := int64(len(p.form.writeNumbers()))
	applied := func(at int64, _ bool) { a.applied = append(a.applied, p.order[at/step]) }
	err = cmp.Or(err, eachInt(row[2], applied), eachInt(row[3], applied))
	if p.form&formShips == 0 || err != nil {
		return err
	}
	add := func(to *[]int64) func(int64, bool) { return func(n int64, _ bool) { *to = append(*to, n) } }
	return cmp.Or(eachInt(row[4], add(&a.granted)), eachInt(row[5], add(&a.whole)))
}

const knownRequests = `
SELECT n.ord FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) AS n(ord, name, request_id, version)
JOIN signer s ON s.signer = n.name AND s.version = n.version
JOIN signer_request q ON q.signer_id = s.signer_id AND q.request_id = n.request_id`

// findKnown tells the writes of which a request id is known from those whose version is
// another. It looks only where a write with request ids was not applied, after the commit.
func findKnown(ctx context.Context, conn *pgxpool.Conn, writes []nonce.Write, asking []int, results []nonce.WriteResult) error {
	if len(asking) == 0 {
		return nil
	}
	var ords []int
	var names, ids []string
	var versions []int64
	for _, i := range asking {
		for j := range writes[i].Requests {
			ords, names, ids, versions = append(ords, i), append(names, writes[i].Name), append(ids, writes[i].Requests[j].ID), append(versions, writes[i].Believed())
		}
	}
	rows, err := conn.Query(ctx, knownRequests, ords, names, ids, versions)
	if err != nil {
		return err
	}
	var ord int
	_, err = pgx.ForEachRow(rows, []any{&ord}, func() error {
		results[ord] = nonce.IDKnown
		return nil
	})
	return err
}
