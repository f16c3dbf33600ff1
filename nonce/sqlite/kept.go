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
	_ nonce.Exporter  = (*Beside)(nil)
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

// Export implements nonce.Exporter.
func (b *Beside) Export(ctx context.Context, history bool, each func(time.Time, *nonce.Kept) error) error {
	return b.s.Export(ctx, history, each)
}

// Export implements nonce.KeptStore.
func (s *Store) Export(ctx context.Context, history bool, each func(time.Time, *nonce.Kept) error) error {
	var told error
	err := s.read(ctx, func(ctx context.Context, c *session) error {
		now := s.now()
		return nonce.ExportRows(ctx, keptRows{c}, history, func(part *nonce.Kept) error {
			told = each(now, part)
			return told
		})
	})
	if told != nil {
		return told
	}
	return err
}

// keptRows reads in the transaction of an export.
type keptRows struct{ *session }

var _ nonce.KeptRows = keptRows{}

func (x keptRows) Names(ctx context.Context) (map[nonce.Principal]string, error) {
	names := make(map[nonce.Principal]string)
	return names, x.each(ctx, func(scan func(...any) error) error {
		var key int64
		var name string
		err := scan(&key, &name)
		names[nonce.Principal(key)] = name
		return err
	}, sqlAllNames)
}

func (x keptRows) Signers(ctx context.Context, after string) (rows []nonce.KeptRow, err error) {
	err = x.each(ctx, func(scan func(...any) error) error {
		var r nonce.KeptRow
		var live []byte
		err := scan(&r.ID, &r.Name, &r.Version, &r.Next, &r.Floor, &live, &r.Watch.Kind, &r.Watch.Nonce, &r.Watch.Since)
		r.Live, r.Err = nonce.ParseLive(live, r.Next)
		rows = append(rows, r)
		return err
	}, sqlAllKept, after, nonce.KeptPiece)
	return rows, err
}

func (x keptRows) Pasts(ctx context.Context, signer, from int64) ([]nonce.Past, error) {
	return x.pasts(ctx, sqlPastFrom, signer, from, nonce.KeptPiece)
}

func (x keptRows) Requests(ctx context.Context, signer int64, after string) (out []nonce.KeptRequest, err error) {
	err = x.each(ctx, func(scan func(...any) error) error {
		var q nonce.KeptRequest
		var hash, text []byte
		var at int64
		if err := scan(&q.ID, &hash, &text, &at); err != nil {
			return err
		}
		copy(q.Hash[:], hash)
		q.At = time.UnixMilli(at)
		err := q.UnpackNonces(text)
		out = append(out, q)
		return err
	}, sqlKeptRequests, signer, after, nonce.KeptPiece)
	return out, err
}

func (x keptRows) Sent(ctx context.Context, name string, after *nonce.KeptSent) (out []nonce.KeptSent, err error) {
	err = x.each(ctx, func(scan func(...any) error) error {
		t := nonce.KeptSent{Sent: nonce.Sent{Signer: name}}
		var hash, payment []byte
		var state, at int64
		err := scan(&t.Nonce, &hash, &payment, &state, &t.Raw, &at)
		copy(t.Hash[:], hash)
		copy(t.Payment[:], payment)
		t.State, t.LookAt = nonce.SentState(state), time.UnixMilli(at)
		out = append(out, t)
		return err
	}, sqlKeptSent, name, after.Nonce, after.Hash[:], nonce.KeptPiece)
	return out, err
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
