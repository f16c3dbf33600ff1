//go:build unix

package torture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/history"
)

// readSamples looks at all signers; owner and token are of the shard.
func readSamples(ctx context.Context, conn *pgx.Conn, at time.Duration) (samples []history.Sample, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var ids, ofs, nonces []int64
		rows, err := tx.Query(ctx, `
			SELECT s.signer_id, s.signer, d.owner_node, d.owner_incarnation, d.fencing_token, s.version, s.next_nonce, s.floor, s.fencing_token, s.live
			FROM signer s JOIN shard d USING (shard_id)`)
		if err != nil {
			return err
		}
		s := history.Sample{At: at}
		var id int64
		var live []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &s.Signer, &s.Owner, &s.Incarnation, &s.Token, &s.Version, &s.Next, &s.Floor, &s.Written, &live}, func() error {
			stored := history.StoredSigner{Signer: s.Signer, Next: s.Next}
			if err := stored.Lives(live); err != nil {
				return nil // nobody can read it: the gateways raise the alarm, and so does the end
			}
			ids, samples = append(ids, id), append(samples, s)
			for i := range stored.Rows {
				ofs, nonces = append(ofs, id), append(nonces, stored.Rows[i].Nonce)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return readBoth(ctx, tx, samples, ids, ofs, nonces)
	})
	return samples, err
}

// readBoth finds those of the nonces that live which are in the history too.
func readBoth(ctx context.Context, tx pgx.Tx, samples []history.Sample, ids, ofs, nonces []int64) error {
	rows, err := tx.Query(ctx, `
		SELECT h.signer_id, h.nonce FROM unnest($1::bigint[], $2::bigint[]) AS n(signer_id, nonce) JOIN signer_history h USING (signer_id, nonce)`, ofs, nonces)
	if err != nil {
		return err
	}
	var id, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		s := &samples[slices.Index(ids, id)]
		s.Both = append(s.Both, n)
		return nil
	})
	return err
}

// readFinal reads all that is stored.
func readFinal(ctx context.Context, tx pgx.Tx) (*history.Final, error) {
	f := new(history.Final)
	if err := tx.QueryRow(ctx, `SELECT store_millis()`).Scan(&f.Now); err != nil {
		return nil, err
	}
	at, err := readSigners(ctx, tx, f)
	if err != nil {
		return nil, err
	}
	if err := readPast(ctx, tx, f, at); err != nil {
		return nil, err
	}
	for i := range f.Signers {
		slices.SortStableFunc(f.Signers[i].Rows, func(a, b history.Row) int { return int(a.Nonce - b.Nonce) })
	}
	return f, readRequests(ctx, tx, f, at)
}

// readSigners reads the signers and what lives of them, as the database itself decodes
// it: somebody else than the gateways. It returns the place of each by its id.
func readSigners(ctx context.Context, tx pgx.Tx, f *history.Final) (map[int64]int, error) {
	rows, err := tx.Query(ctx, `
		SELECT s.signer_id, s.signer, s.next_nonce, s.floor, s.version, d.fencing_token
		FROM signer s JOIN shard d USING (shard_id) ORDER BY s.signer_id`)
	if err != nil {
		return nil, err
	}
	at := make(map[int64]int)
	var id int64
	var s history.StoredSigner
	_, err = pgx.ForEachRow(rows, []any{&id, &s.Signer, &s.Next, &s.Floor, &s.Version, &s.Token}, func() error {
		at[id] = len(f.Signers)
		f.Signers = append(f.Signers, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, err = tx.Query(ctx, `
		SELECT s.signer_id, coalesce(e.nonce, -1), e.status, coalesce(e.attempt, 0), coalesce(e.held_until, 0), coalesce(e.reason, ''), coalesce(e.tx_hashes, '')
		FROM signer s, live_entries(s.live) e`)
	if err != nil {
		return nil, err
	}
	var r history.Row
	var hashes []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Nonce, &r.Status, &r.Attempt, &r.HeldUntil, &r.Reason, &hashes}, func() error {
		row, of := r, &f.Signers[at[id]]
		row.Recorded(hashes)
		of.Rows = append(of.Rows, row)
		if row.Status == history.Held {
			of.Held++
		}
		return nil
	})
	return at, err
}

// readPast adds what was consumed.
func readPast(ctx context.Context, tx pgx.Tx, f *history.Final, at map[int64]int) error {
	rows, err := tx.Query(ctx, `SELECT signer_id, nonce, attempt, tx_hashes, reason FROM signer_history`)
	if err != nil {
		return err
	}
	var id int64
	var r history.Row
	var hashes []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Nonce, &r.Attempt, &hashes, &r.Reason}, func() error {
		row := r
		row.Status = history.Consumed
		row.Recorded(hashes)
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("a consumed nonce of signer %d, which does not exist", id)
		}
		f.Signers[i].Rows = append(f.Signers[i].Rows, row)
		return nil
	})
	return err
}

// readRequests adds the request ids that are remembered.
func readRequests(ctx context.Context, tx pgx.Tx, f *history.Final, at map[int64]int) error {
	for i := range f.Signers {
		f.Signers[i].Requests = make(map[string][]history.Given)
	}
	rows, err := tx.Query(ctx, `SELECT signer_id, request_id, nonces FROM signer_request`)
	if err != nil {
		return err
	}
	var id int64
	var request, nonces string
	_, err = pgx.ForEachRow(rows, []any{&id, &request, &nonces}, func() error {
		i, ok := at[id]
		if !ok {
			return fmt.Errorf("request %q of signer %d, which does not exist", request, id)
		}
		given, err := history.ParseGiven([]byte(nonces))
		f.Signers[i].Requests[request] = given
		return err
	})
	return err
}

// openHolds counts the holds in the signers' rows.
func openHolds(ctx context.Context, conn *pgx.Conn) (n int64, overdue time.Duration, err error) {
	rows, err := conn.Query(ctx, `SELECT store_millis(), next_nonce, live FROM signer`)
	if err != nil {
		return 0, 0, err
	}
	var now int64
	var s history.StoredSigner
	var live []byte
	_, err = pgx.ForEachRow(rows, []any{&now, &s.Next, &live}, func() error {
		signer := s
		if err := signer.Lives(live); err != nil {
			return err
		}
		for i := range signer.Rows {
			if r := &signer.Rows[i]; r.Status == history.Held {
				n++
				overdue = max(overdue, time.Duration(now-r.HeldUntil)*time.Millisecond)
			}
		}
		return nil
	})
	return n, overdue, err
}
