package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

const (
	sqlSigner = `SELECT signer_id, version, fencing_token, next_nonce, floor, live FROM signer WHERE signer = ?`

	// A cursor or floor that would fall leaves the row as it is.
	sqlUpdateSigner = `
UPDATE signer SET version = ?3, fencing_token = ?4, next_nonce = ?5, floor = ?6, live = ?7, updated_at = ?8
WHERE signer_id = ?1 AND version = ?2 AND next_nonce <= ?5 AND floor <= ?6`

	sqlInsertSigner = `
INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at) VALUES (?, ?, 1, ?, ?, ?, ?, ?) RETURNING signer_id`

	sqlPast     = `SELECT nonce, attempt, holder, tx_hashes, reason, at FROM signer_history WHERE signer_id = ? AND nonce = ?`
	sqlPastFrom = `SELECT nonce, attempt, holder, tx_hashes, reason, at FROM signer_history WHERE signer_id = ? AND nonce >= ? ORDER BY nonce LIMIT ?`
	sqlPutPast  = `
INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (signer_id, nonce) DO UPDATE SET attempt = excluded.attempt, holder = excluded.holder, tx_hashes = excluded.tx_hashes,
    reason = excluded.reason, at = excluded.at WHERE ?8 AND attempt <= excluded.attempt`

	sqlKnownRequest = `SELECT request_hash, nonces FROM signer_request WHERE signer_id = ? AND request_id = ?`
	sqlPutRequest   = `INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at) VALUES (?, ?, ?, ?, ?)`

	sqlPutDue = `
INSERT INTO signer_due (signer_id, shard_id, due_at) VALUES (?1, ?2, ?3)
ON CONFLICT (signer_id) DO UPDATE SET due_at = excluded.due_at WHERE excluded.due_at < due_at OR due_at <= ?4`

	sqlNotDue = `DELETE FROM signer_due WHERE signer_id = ? AND due_at <= ?`

	// What the list says already stays with kind 1 (nonce.WatchOn).
	sqlPutWatch = `
INSERT INTO signer_watch (signer_id, shard_id, kind, nonce, since) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (signer_id) DO UPDATE SET kind = excluded.kind, nonce = excluded.nonce, since = excluded.since WHERE excluded.kind > 1`

	sqlNotWatched = `DELETE FROM signer_watch WHERE signer_id = ?`

	sqlWatched = `
SELECT w.signer_id, s.signer, w.kind, w.nonce, w.since FROM signer_watch w JOIN signer s USING (signer_id)
WHERE w.signer_id > ?1 AND w.shard_id IN (SELECT value FROM json_each(?2)) ORDER BY w.signer_id LIMIT ?3`

	sqlDueSigners = `
SELECT d.shard_id, s.signer, d.due_at FROM signer_due d JOIN signer s USING (signer_id)
WHERE d.due_at <= ?1 AND d.shard_id IN (SELECT value FROM json_each(?2)) ORDER BY d.due_at, d.signer_id LIMIT ?3`
)

// stored is a signer's row.
type stored struct {
	nonce.Signer
	id, token int64 // id 0: there is no row
	live      []byte
}

func (c *session) signerRow(ctx context.Context, name string) (s stored, err error) {
	_, err = c.one(ctx, []any{&s.id, &s.Version, &s.token, &s.Next, &s.Floor, &s.live}, sqlSigner, name)
	return s, err
}

// loadSigner reads all that is needed of one signer.
func (c *session) loadSigner(ctx context.Context, shards int, need *nonce.SignerNeed) (l nonce.LoadedSigner, err error) {
	if l.Shard, err = c.owner(ctx, nonce.ShardOf(need.Signer, shards)); err != nil {
		return l, err
	}
	row, err := c.signerRow(ctx, need.Signer)
	if err != nil {
		return l, err
	}
	l.Signer, l.Token = row.Signer, row.token
	l.Signer.Live, l.Err = nonce.ParseLive(row.live, row.Next)
	l.History, l.Requests = make(map[int64]*nonce.Past), make(map[string]*nonce.Remembered)
	for _, n := range need.History {
		past, err := c.pasts(ctx, sqlPast, row.id, n)
		if err != nil {
			return l, err
		}
		l.History[n] = nil
		if len(past) > 0 {
			l.History[n] = &past[0]
		}
	}
	for _, id := range need.Requests {
		if l.Requests[id], err = c.knownRequest(ctx, row.id, id); err != nil {
			return l, err
		}
	}
	return l, nil
}

// pasts reads rows of the history.
func (c *session) pasts(ctx context.Context, query string, args ...any) (past []nonce.Past, err error) {
	err = c.each(ctx, func(scan func(...any) error) error {
		var p nonce.Past
		var holder, at int64
		var hashes []byte
		err := scan(&p.Nonce, &p.Attempt, &holder, &hashes, &p.Reason, &at)
		p.Holder, p.At = nonce.Principal(holder), time.UnixMilli(at)
		p.TxHash, p.Replaced = nonce.SplitHashes(hashes)
		past = append(past, p)
		return err
	}, query, args...)
	return past, err
}

func (c *session) knownRequest(ctx context.Context, signer int64, id string) (*nonce.Remembered, error) {
	q := nonce.Remembered{ID: id}
	var hash, text []byte
	found, err := c.one(ctx, []any{&hash, &text}, sqlKnownRequest, signer, id)
	if err != nil || !found {
		return nil, err
	}
	copy(q.Hash[:], hash)
	return &q, q.UnpackNonces(text)
}

// Load implements nonce.Store.
func (s *Store) Load(ctx context.Context, needs []nonce.SignerNeed) (out nonce.Loaded, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		out = nonce.Loaded{Now: time.UnixMilli(s.millis())}
		for i := range needs {
			l, err := c.loadSigner(ctx, s.shards, &needs[i])
			if err != nil {
				return err
			}
			out.Signers = append(out.Signers, l)
		}
		return nil
	})
	return out, err
}

var errGeneration = &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("the belief is of another database")}

// Commit implements nonce.Store.
func (s *Store) Commit(ctx context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	if slices.ContainsFunc(writes, func(w nonce.Write) bool { return w.Generation != s.Generation() }) {
		return nonce.Committed{}, errGeneration
	}
	var out nonce.Committed
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		now := s.millis()
		out = nonce.Committed{Now: time.UnixMilli(now), Results: make([]nonce.WriteResult, len(writes))}
		owners, err := c.owners(ctx)
		if err != nil {
			return err
		}
		wrote := false
		for i := range writes {
			w := &writes[i]
			o := &owners[nonce.ShardOf(w.Name, s.shards)]
			out.Results[i] = nonce.NotOwner
			if o.Owner != h || o.Token != w.Term.Token || o.Shard != w.Term.Shard {
				continue
			}
			if out.Results[i], err = c.writeSigner(ctx, w, w.Term.Token, now); err != nil {
				return err
			}
			wrote = wrote || !isRead(w) && out.Results[i] == nonce.Applied
		}
		if !wrote {
			return errNothing
		}
		return nil
	})
	return out, err
}

// isRead reports whether a write changes nothing in the database: it compares, and lists
// nothing.
func isRead(w *nonce.Write) bool { return w.Check && w.DueAt == 0 && w.Watch.Kind == nonce.WatchAsIs }

// writeSigner applies one write to a signer whose shard is as the writer believes.
func (c *session) writeSigner(ctx context.Context, w *nonce.Write, token, now int64) (nonce.WriteResult, error) {
	row, err := c.signerRow(ctx, w.Name)
	if err != nil {
		return 0, err
	}
	believed := w.Signer.Version
	if !w.Check {
		believed--
	}
	if row.Version != believed {
		return nonce.Moved, nil
	}
	for i := range w.Requests {
		known, err := c.knownRequest(ctx, row.id, w.Requests[i].ID)
		if err != nil {
			return 0, err
		}
		if known != nil {
			return nonce.IDKnown, nil
		}
	}
	switch {
	case w.NotBefore > now:
		return nonce.TooEarly, nil
	case w.Check:
		return nonce.Applied, c.list(ctx, w, row.id, now)
	}
	if row.id, err = c.putSigner(ctx, w, &row, token, now); err != nil {
		return 0, err
	}
	if err := c.putRest(ctx, w, row.id, now); err != nil {
		return 0, err
	}
	return nonce.Applied, c.list(ctx, w, row.id, now)
}

// putSigner writes the signer's row and returns its id.
func (c *session) putSigner(ctx context.Context, w *nonce.Write, row *stored, token, now int64) (id int64, err error) {
	live := nonce.AppendLive([]byte{}, w.Signer.Live)
	if row.id == 0 {
		_, err = c.one(ctx, []any{&id}, sqlInsertSigner, w.Name, w.Term.Shard, token, w.Signer.Next, w.Signer.Floor, live, now)
		return id, err
	}
	n, err := c.exec(ctx, sqlUpdateSigner, row.id, row.Version, w.Signer.Version, token, w.Signer.Next, w.Signer.Floor, live, now)
	if err == nil && n != 1 {
		err = fmt.Errorf("%w: the cursor or the floor of %s falls", nonce.ErrInvariant, w.Name)
	}
	return row.id, err
}

// putRest writes what goes with the signer's row.
func (c *session) putRest(ctx context.Context, w *nonce.Write, id, now int64) error {
	for i := range w.History {
		p := &w.History[i]
		n, err := c.exec(ctx, sqlPutPast, id, p.Nonce, p.Attempt, int64(p.Holder), nonce.AppendHashes([]byte{}, p.TxHash, p.Replaced), p.Reason, now, p.Again)
		if err == nil && n != 1 {
			err = fmt.Errorf("%w: nonce %d of %s was consumed with a higher attempt than %d", nonce.ErrInvariant, p.Nonce, w.Name, p.Attempt)
		}
		if err != nil {
			return err
		}
	}
	for i := range w.Requests {
		q := &w.Requests[i]
		if _, err := c.exec(ctx, sqlPutRequest, id, q.ID, q.Hash[:], q.PackNonces(), now); err != nil {
			return err
		}
	}
	return nil
}

// list lists the signer as a write says.
func (c *session) list(ctx context.Context, w *nonce.Write, id, now int64) (err error) {
	switch {
	case w.DueAt == nonce.Unlisted:
		_, err = c.exec(ctx, sqlNotDue, id, now)
	case w.DueAt != 0 && id != 0:
		_, err = c.exec(ctx, sqlPutDue, id, w.Term.Shard, w.DueAt, now)
	}
	if err != nil || id == 0 {
		return err
	}
	switch as := &w.Watch; {
	case as.Kind == nonce.WatchOff:
		_, err = c.exec(ctx, sqlNotWatched, id)
	case as.Kind != nonce.WatchAsIs:
		_, err = c.exec(ctx, sqlPutWatch, id, w.Term.Shard, as.Kind, as.Nonce, as.Since)
	}
	return err
}

var errOtherSigner = errors.New("the plan is of another signer than was locked")

// Locked implements nonce.Store. SQLite has one writer at a time, so that the
// transaction is the lock.
func (s *Store) Locked(ctx context.Context, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (nonce.Committed, error) {
	var out nonce.Committed
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		now := s.millis()
		l, err := c.loadSigner(ctx, s.shards, &need)
		if err != nil {
			return err
		}
		w, err := plan(nonce.Loaded{Now: time.UnixMilli(now), Signers: []nonce.LoadedSigner{l}})
		if err != nil {
			return errPlan{err}
		}
		if w.Name != need.Signer {
			return errOtherSigner
		}
		w.Term.Shard = l.Shard.Shard
		result, err := c.writeSigner(ctx, &w, 0, now)
		out = nonce.Committed{Now: time.UnixMilli(now), Results: []nonce.WriteResult{result}}
		if err == nil && (isRead(&w) || result != nonce.Applied) {
			return errNothing
		}
		return err
	})
	return out, err
}

// Due implements nonce.Store.
func (s *Store) Due(ctx context.Context, shards []int, limit int) (due []nonce.DueEntry, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		due = nil
		return c.each(ctx, func(scan func(...any) error) error {
			var e nonce.DueEntry
			err := scan(&e.Shard, &e.Signer, &e.At)
			due = append(due, e)
			return err
		}, sqlDueSigners, s.millis(), listOf(shards), limit)
	})
	return due, err
}

// Watched implements nonce.Store.
func (s *Store) Watched(ctx context.Context, shards []int, after int64, limit int) (list []nonce.WatchEntry, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		list = nil
		return c.each(ctx, func(scan func(...any) error) error {
			var e nonce.WatchEntry
			err := scan(&e.ID, &e.Signer, &e.Kind, &e.Nonce, &e.Since)
			list = append(list, e)
			return err
		}, sqlWatched, after, listOf(shards), limit)
	})
	return list, err
}
