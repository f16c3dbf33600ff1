//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/pgtest"
	"noncegate/nonce/postgres"
	"noncegate/torture/history"
)

// NewHeart names the gateways that serve from shards, as their --heart does.
const NewHeart = "new"

// heart is what a run has to know of how a gateway keeps signers: its flags, how its
// database is made and read, and where it can be hurt.
type heart struct {
	flags   []string
	migrate func(ctx context.Context, url string) error
	samples func(ctx context.Context, conn *pgx.Conn, at time.Duration) ([]history.Sample, error)
	final   func(ctx context.Context, tx pgx.Tx) (*history.Final, error)
	// open counts the holds that are open, and says since when the first is overdue.
	open func(ctx context.Context, conn *pgx.Conn) (n int64, overdue time.Duration, err error)
	// lockRows locks the rows of the signers named in $1 within a transaction; lockShards
	// those of their shards, "" where there are none.
	lockRows, lockShards string
	// cut and late lose the reply of the next commit of a node of mode worker-queue, or let
	// that commit arrive late.
	cut  func(db *pgtest.Proxy) <-chan struct{}
	late func(db *pgtest.Proxy, by time.Duration) <-chan struct{}
	// maxOverdue is how long after its deadline a hold may be open once everything is healed.
	maxOverdue time.Duration
	grace      time.Duration // for how long after its deadline nobody ends a hold
}

// hearts are those that there are, by what --heart says.
var hearts = map[string]*heart{
	"": {
		migrate: func(ctx context.Context, url string) error {
			s, err := postgres.Open(ctx, url, postgres.Config{})
			if err != nil {
				return err
			}
			_, err = s.Migrate(ctx)
			return errors.Join(err, s.Close())
		},
		samples:  readSamples,
		final:    readFinal,
		open:     openHolds,
		lockRows: `SELECT 1 FROM signer_nonce_state WHERE signer = ANY ($1) ORDER BY signer_id FOR UPDATE`,
		// The name of a prepared statement, in a bind.
		cut: func(db *pgtest.Proxy) <-chan struct{} { return db.CutReplies("\x00noncegate_commit_") },
		late: func(db *pgtest.Proxy, by time.Duration) <-chan struct{} {
			return db.DelayRequest("\x00noncegate_commit_", by)
		},
		// What is left of a lease, a sweep, and room for a machine that is busy.
		maxOverdue: leaseTTL + sweepInterval + 2*time.Second,
	},
	NewHeart: {
		flags: []string{"--heart=" + NewHeart},
		migrate: func(ctx context.Context, url string) error {
			s, err := postgres.OpenShards(ctx, url, shards, postgres.Config{})
			if err != nil {
				return err
			}
			return s.Close()
		},
		samples:    readShardSamples,
		final:      readShardFinal,
		open:       openShardHolds,
		lockRows:   `SELECT 1 FROM signer WHERE signer = ANY ($1) ORDER BY signer_id FOR UPDATE`,
		lockShards: `SELECT 1 FROM shard WHERE shard_id IN (SELECT shard_id FROM signer WHERE signer = ANY ($1)) ORDER BY shard_id FOR UPDATE`,
		cut:        func(db *pgtest.Proxy) <-chan struct{} { return db.CutStatement(shardCommit) },
		late:       func(db *pgtest.Proxy, by time.Duration) <-chan struct{} { return db.DelayStatement(shardCommit, by) },
		// The second that every hold lasts beyond its deadline, what is left of a lease, the
		// second for which a shard stays free, two looks at who has it, a sweep, and room.
		maxOverdue: time.Second + leaseTTL + 2*time.Second + sweepInterval + 2*time.Second,
		grace:      time.Second,
	},
}

// shards is how many a database of a run has: few enough that signers share them.
const shards = 8

// shardCommit is in the text of every commit of a node of mode worker-queue, and in no
// other statement.
const shardCommit = "\nlocked AS MATERIALIZED ("

// heartOf finds a heart by its name.
func heartOf(name string) (*heart, error) {
	h := hearts[name]
	if h == nil {
		return nil, fmt.Errorf("there is no heart %q", name)
	}
	return h, nil
}

// readShardSamples is readSamples for signers in shards: owner and token are of the shard.
func readShardSamples(ctx context.Context, conn *pgx.Conn, at time.Duration) (samples []history.Sample, err error) {
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

// readShardFinal reads all that is stored of signers in shards.
func readShardFinal(ctx context.Context, tx pgx.Tx) (*history.Final, error) {
	f := new(history.Final)
	if err := tx.QueryRow(ctx, `SELECT store_millis()`).Scan(&f.Now); err != nil {
		return nil, err
	}
	at, err := readShardSigners(ctx, tx, f)
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

// readShardSigners reads the signers and what lives of them, as the database itself decodes
// it: somebody else than the gateways. It returns the place of each by its id.
func readShardSigners(ctx context.Context, tx pgx.Tx, f *history.Final) (map[int64]int, error) {
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
		if of.Rows = append(of.Rows, row); row.Status == history.Held {
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

// openShardHolds counts the holds in the signers' rows.
func openShardHolds(ctx context.Context, conn *pgx.Conn) (n int64, overdue time.Duration, err error) {
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
