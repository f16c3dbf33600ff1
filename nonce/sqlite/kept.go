package sqlite

import (
	"context"
	"errors"
	"io"
	"time"

	"noncegate/nonce"
)

var (
	_ nonce.KeptStore = (*Store)(nil)
	_ nonce.KeptStore = (*Beside)(nil)
)

const (
	sqlAllNames = `SELECT principal, name FROM gateway_principal ORDER BY principal`
	sqlAllKept  = `
SELECT signer_id, signer, version, next_nonce, floor, live, coalesce(w.kind, 0), coalesce(w.nonce, 0), coalesce(w.since, 0)
FROM signer LEFT JOIN signer_watch w USING (signer_id) WHERE signer > ? ORDER BY signer LIMIT ?`
	sqlKeptRequests = `
SELECT request_id, request_hash, nonces, created_at FROM signer_request WHERE signer_id = ? AND request_id > ? ORDER BY request_id LIMIT ?`
	sqlKeptSent = `
SELECT nonce, tx_hash, payment, state, raw, look_at FROM signer_sent
WHERE signer = ?1 AND (nonce, tx_hash) > (?2, ?3) ORDER BY nonce, tx_hash LIMIT ?4`

	sqlPutKept = `
INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at) VALUES (?, ?, ?, 0, ?, ?, ?, ?)
ON CONFLICT DO NOTHING RETURNING signer_id`
	sqlPutKeptSent = `
INSERT INTO signer_sent (signer, nonce, tx_hash, shard_id, payment, raw, state, look_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
)

// Export implements nonce.KeptStore.
func (b *Beside) Export(ctx context.Context, history bool, each func(time.Time, *nonce.Kept) error) error {
	return b.s.Export(ctx, history, each)
}

// Import implements nonce.KeptStore. The process that has the file finds the signers when it
// reads them, or when it writes one that it believes to be new.
func (b *Beside) Import(ctx context.Context, next func() (*nonce.Kept, error)) error {
	return b.s.Import(ctx, next)
}

// Export implements nonce.KeptStore.
func (s *Store) Export(ctx context.Context, history bool, each func(time.Time, *nonce.Kept) error) error {
	var told error
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		now := s.now()
		x := exporting{c, history, func(part *nonce.Kept) error {
			told = each(now, part)
			return told
		}}
		return x.all(ctx)
	})
	if told != nil {
		return told
	}
	return err
}

// exporting is an export in its read transaction.
type exporting struct {
	*session
	history bool
	each    func(*nonce.Kept) error
}

// keptRow is a signer and its key.
type keptRow struct {
	id   int64
	part nonce.Kept
}

func (x *exporting) all(ctx context.Context) error {
	names := make(map[nonce.Principal]string)
	err := x.session.each(ctx, func(scan func(...any) error) error {
		var key int64
		var name string
		err := scan(&key, &name)
		names[nonce.Principal(key)] = name
		return err
	}, sqlAllNames)
	if err == nil {
		err = x.each(&nonce.Kept{Names: names})
	}
	for after := ""; err == nil; {
		var rows []keptRow
		if rows, err = x.signers(ctx, after); err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			after = rows[i].part.Name
			if err = x.signer(ctx, &rows[i]); err != nil {
				return err
			}
		}
	}
	return err
}

func (x *exporting) signers(ctx context.Context, after string) (rows []keptRow, err error) {
	err = x.session.each(ctx, func(scan func(...any) error) error {
		row := keptRow{part: nonce.Kept{Signer: new(nonce.KeptSigner)}}
		at := row.part.Signer
		var live []byte
		err := scan(&row.id, &row.part.Name, &at.Version, &at.Next, &at.Floor, &live, &at.Watch.Kind, &at.Watch.Nonce, &at.Watch.Since)
		at.Live, at.Err = nonce.ParseLive(live, at.Next)
		rows = append(rows, row)
		return err
	}, sqlAllKept, after, nonce.KeptPiece)
	return rows, err
}

// signer tells of a signer, and of all that belongs to it.
func (x *exporting) signer(ctx context.Context, row *keptRow) error {
	if err := x.each(&row.part); err != nil {
		return err
	}
	if x.history {
		if err := x.pastsOf(ctx, row); err != nil {
			return err
		}
	}
	if err := x.requestsOf(ctx, row); err != nil {
		return err
	}
	return x.sentOf(ctx, row.part.Name)
}

func (x *exporting) pastsOf(ctx context.Context, row *keptRow) error {
	for from := int64(0); ; {
		past, err := x.pasts(ctx, sqlPastFrom, row.id, from, nonce.KeptPiece)
		if err != nil || len(past) == 0 {
			return err
		}
		if err := x.each(&nonce.Kept{Name: row.part.Name, History: past}); err != nil {
			return err
		}
		from = past[len(past)-1].Nonce + 1
	}
}

func (x *exporting) requestsOf(ctx context.Context, row *keptRow) error {
	for after := ""; ; {
		part := nonce.Kept{Name: row.part.Name}
		err := x.session.each(ctx, func(scan func(...any) error) error {
			var q nonce.KeptRequest
			var hash, text []byte
			var at int64
			if err := scan(&q.ID, &hash, &text, &at); err != nil {
				return err
			}
			copy(q.Hash[:], hash)
			q.At, after = time.UnixMilli(at), q.ID
			err := q.UnpackNonces(text)
			part.Requests = append(part.Requests, q)
			return err
		}, sqlKeptRequests, row.id, after, nonce.KeptPiece)
		if err != nil || len(part.Requests) == 0 {
			return err
		}
		if err := x.each(&part); err != nil {
			return err
		}
	}
}

func (x *exporting) sentOf(ctx context.Context, name string) error {
	for n, last := int64(-1), []byte{}; ; {
		part := nonce.Kept{Name: name}
		err := x.session.each(ctx, func(scan func(...any) error) error {
			t := nonce.KeptSent{Sent: nonce.Sent{Signer: name}}
			var payment []byte
			var state, at int64
			err := scan(&t.Nonce, &last, &payment, &state, &t.Raw, &at)
			copy(t.Hash[:], last)
			copy(t.Payment[:], payment)
			t.State, t.LookAt, n = nonce.SentState(state), time.UnixMilli(at), t.Nonce
			part.Sent = append(part.Sent, t)
			return err
		}, sqlKeptSent, name, n, last, nonce.KeptPiece)
		if err != nil || len(part.Sent) == 0 {
			return err
		}
		if err := x.each(&part); err != nil {
			return err
		}
	}
}

// Import implements nonce.KeptStore.
func (s *Store) Import(ctx context.Context, next func() (*nonce.Kept, error)) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		x := importing{c, s, 0, s.millis()}
		for {
			part, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return errPlan{err}
			}
			if err := x.take(ctx, part); err != nil {
				return err
			}
		}
	})
}

// importing is an import in its write transaction.
type importing struct {
	*session
	store *Store
	id    int64 // the key of the last signer
	now   int64
}

func (x *importing) take(ctx context.Context, part *nonce.Kept) error {
	for key, name := range part.Names {
		if _, err := x.exec(ctx, sqlRememberName, int64(key), name); err != nil {
			return err
		}
	}
	shard := nonce.ShardOf(part.Name, x.store.shards)
	if part.Signer != nil {
		if err := x.signer(ctx, part.Name, shard, part.Signer); err != nil {
			return err
		}
	}
	for i := range part.History {
		p := &part.History[i]
		hashes := nonce.AppendHashes([]byte{}, p.TxHash, p.Replaced)
		_, err := x.exec(ctx, sqlPutPast, x.id, p.Nonce, p.Attempt, int64(p.Holder), hashes, p.Reason, p.At.UnixMilli(), false)
		if err != nil {
			return err
		}
	}
	for i := range part.Requests {
		q := &part.Requests[i]
		if _, err := x.exec(ctx, sqlPutRequest, x.id, q.ID, q.Hash[:], q.PackNonces(), q.At.UnixMilli()); err != nil {
			return err
		}
	}
	for i := range part.Sent {
		t := &part.Sent[i]
		if _, err := x.exec(ctx, sqlPutKeptSent, part.Name, t.Nonce, t.Hash[:], shard, t.Payment[:], append([]byte{}, t.Raw...), int64(t.State),
			t.LookAt.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

func (x *importing) signer(ctx context.Context, name string, shard int, at *nonce.KeptSigner) error {
	there, err := x.one(ctx, []any{&x.id}, sqlPutKept, name, shard, at.Version, at.Next, at.Floor, nonce.AppendLive([]byte{}, at.Live), x.now)
	if err != nil {
		return err
	}
	if !there {
		return errPlan{&nonce.KnownSignerError{Name: name}}
	}
	if due := at.FirstDeadline(); due > 0 {
		if _, err := x.exec(ctx, sqlPutDue, x.id, shard, due, x.now); err != nil {
			return err
		}
	}
	if w := at.Watch; w.Kind >= nonce.WatchOn {
		_, err = x.exec(ctx, sqlPutWatch, x.id, shard, int64(w.Kind), w.Nonce, w.Since)
	}
	return err
}
