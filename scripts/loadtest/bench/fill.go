//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/traffic"
)

// stored is what a database holds before it is measured; the zero value is
// nothing.
type stored struct {
	signers int
	each    int // allocations of each signer, 2 or more
}

// String is the filling for people.
func (s stored) String() string {
	if s == (stored{}) {
		return "empty"
	}
	return fmt.Sprintf("%s signers, %s allocations stored", whole(float64(s.signers)), whole(float64(s.signers)*float64(s.each)))
}

// piece is how many rows one statement writes: enough that it is fast, few enough
// that its progress can be told and Ctrl-C is heard.
const piece = 1_000_000

// A database is filled so: nobody owns the signers. The last nonce of every tenth
// is HELD for a day, the last but one of another tenth RELEASED, all others CONSUMED just
// now. The history is written in the order of time, one nonce of every signer after the other, as
// it comes about, so that a signer's rows lie apart.

type filling struct {
	name string
	err  error // why there is none
}

// filledDatabase finds a filled database, or makes it. What failed once is not tried
// again: it takes minutes.
func (a *arena) filledDatabase(ctx context.Context, k stored) (string, error) {
	f, ok := a.filled[k]
	if !ok {
		f.name, f.err = a.makeFilled(ctx, k)
		a.filled[k] = f
	}
	return f.name, f.err
}

func (a *arena) makeFilled(ctx context.Context, k stored) (string, error) {
	begin := time.Now()
	fmt.Fprintf(a.progress, "filling a database: %v\n", k)
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	if err := a.migrate(ctx, a.pg.URL(name)); err != nil {
		return name, err
	}
	if err := a.fill(ctx, a.pg.URL(name), k); err != nil {
		return name, fmt.Errorf("fill a database: %w", err)
	}
	fmt.Fprintf(a.progress, "filled after %v\n", time.Since(begin).Round(time.Second))
	return name, nil
}

func (a *arena) migrate(ctx context.Context, url string) error {
	p, err := a.room.Start("migrate.log", cleanEnvironment(), a.room.Dir()+"/gateway", "migrate", "--store", url)
	if err != nil {
		return err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return context.Cause(ctx) // the room ends it
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("gateway migrate: %w\n%s", err, p.LogTail(logBytes))
	}
	return nil
}

func (a *arena) fill(ctx context.Context, url string, k stored) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := fillRows(ctx, conn, k); err != nil {
		return fmt.Errorf("signers: %w", err)
	}
	step := max(1, piece/k.signers)
	for from := 0; from < k.each; from += step {
		to := min(from+step, k.each) - 1
		if _, err := conn.Exec(ctx, fillHistory, from, to); err != nil {
			return fmt.Errorf("nonces: %w", err)
		}
		fmt.Fprintf(a.progress, "filling: %s of %s\n", whole(float64(k.signers)*float64(to+1)), whole(float64(k.signers)*float64(k.each)))
	}
	for _, statement := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// forgetFilled drops the filled databases: each belongs to one scene.
func (a *arena) forgetFilled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	for k, f := range a.filled {
		// One that stays takes room until the server is deleted, and no more.
		if f.name != "" {
			if err := a.pg.DropDatabase(ctx, f.name); err != nil {
				fmt.Fprintln(a.progress, err)
			}
		}
		delete(a.filled, k)
	}
}

// The statements that fill the schema in which all that lives of a signer is one row, after
// the signers. Shards have been acquired and released once. History is what is not live.
const (
	fillShards = `UPDATE shard SET fencing_token = 2`
	fillDue    = `INSERT INTO signer_due (signer_id, shard_id, due_at) SELECT signer_id, shard_id, $1 FROM signer WHERE signer_id % 10 = 0`

	fillHistory = `
INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
SELECT s.signer_id, n, 1, 0, int8send(s.signer_id) || int8send(n) || int8send(-n) || int8send(-s.signer_id), '', (SELECT store_millis())
FROM generate_series($1::bigint, $2::bigint) n
CROSS JOIN signer s
WHERE NOT (s.signer_id % 10 = 0 AND n = s.next_nonce - 1 OR s.signer_id % 10 = 5 AND n = s.next_nonce - 2)
ORDER BY n, s.signer_id`
)

// fillRows writes the signers, each with its live state, in an order without order, the same
// each time: the accounts of a load, which have numbers in a row, lie all over the table.
func fillRows(ctx context.Context, conn *pgx.Conn, st stored) error {
	var shards int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM shard`).Scan(&shards); err != nil {
		return err
	}
	if shards == 0 {
		return errors.New("the database has no shards")
	}
	now := time.Now()
	due := now.Add(24 * time.Hour).UnixMilli()
	next := int64(st.each)
	held := nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 1, Status: nonce.Held, Attempt: 1, Until: due}})
	released := nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 2, Status: nonce.Released, Attempt: 1}})
	columns := []string{"signer", "shard_id", "version", "fencing_token", "next_nonce", "floor", "live", "updated_at"}
	accounts, order := traffic.Signers{Count: st.signers}, rand.New(rand.NewPCG(1, 1)).Perm(st.signers)
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"signer"}, columns, pgx.CopyFromSlice(st.signers, func(i int) ([]any, error) {
		id, name := i+1, accounts.Name(order[i])
		live := []byte{}
		switch id % 10 {
		case 0:
			live = held
		case 5:
			live = released
		}
		return []any{name, nonce.ShardOf(name, shards), 2 * next, int64(1), next, int64(0), live, now.UnixMilli()}, nil
	}))
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillShards); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fillDue, due)
	return err
}
