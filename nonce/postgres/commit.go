package postgres

import (
	"context"
	"slices"
	"strings"
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
	out, err := s.commit(ctx, conn, f, h.Node, h.Incarnation, what)
	if err != nil && f == 0 && lockedByOthers(err) {
		s.locksUntil.Store(time.Now().Add(leaveLocked).UnixNano())
		out, err = s.commit(ctx, conn, formSkipLocked, h.Node, h.Incarnation, what)
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

// bytesOfWrite is what one write takes of the byte string, as most do.
const bytesOfWrite = 160

// commit runs the statement of the form that the writes need, with f: 0, formSkipLocked or formBasic.
func (s *Store) commit(ctx context.Context, conn *pgxpool.Conn, f form, node string, incarnation int64, what nonce.Shipment) (nonce.Shipped, error) {
	writes := what.Writes
	p := packed{
		blob: make([]byte, 0, bytesOfWrite*len(writes)), writes: make([]int64, 0, len(writeNumbers)*len(writes)), past: make([]int64, 0, len(pastNumbers)*len(writes)),
		asked: []int64{}, places: make([]int, len(writes)), form: f, shards: []int{},
	}
	order := make([]int, len(writes)) // rows are locked in order of name
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(writes[a].Name, writes[b].Name) })
	for _, i := range order {
		p.add(i, s.shards, &writes[i])
	}
	var now int64
	var beliefs []*int64 // for each shard the belief that the store found; nil: this node does not own it
	var written, same, granted, whole []int
	to := []any{&now, &beliefs, &written, &same}
	args := []any{node, incarnation, p.shards, p.blob, bigints(p.writes), bigints(p.past), bigints(p.asked)}
	if len(what.Shards) > 0 {
		p.ship(what.Shards)
		args[2] = p.shards
		args = append(args, bigints(p.ships), what.Grant.For.Milliseconds(), what.Grant.LongestHold.Milliseconds())
		to = append(to, &granted, &whole)
	}
	if err := conn.QueryRow(ctx, commitText(p.form), args...).Scan(to...); err != nil {
		return nonce.Shipped{}, err
	}
	out := nonce.Shipped{Committed: nonce.Committed{Now: time.UnixMilli(now), Results: make([]nonce.WriteResult, len(writes))}}
	for _, sh := range what.Shards {
		out.Granted = append(out.Granted, slices.Contains(granted, sh.Term.Shard))
		out.Whole = append(out.Whole, slices.Contains(whole, sh.Term.Shard))
	}
	for _, i := range append(written, same...) {
		out.Results[i] = nonce.Applied
	}
	var asking []int
	for i := range writes {
		switch b := beliefs[p.places[i]-1]; {
		case b == nil || f&formBasic == 0 && *b != belief(writes[i].Term) || f&formBasic != 0 && *b%2 != 0:
			out.Results[i] = nonce.NotOwner
		case out.Results[i] == nonce.Applied:
		case writes[i].NotBefore > now:
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
