//go:build unix

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

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

// filler is how a schema is filled. Nobody owns the signers. The last nonce of every tenth
// is HELD for a day, the last but one of another tenth RELEASED, all others CONSUMED just
// now. Rows of nonces are written in the order of time, one nonce of every signer after the
// other, as they come about, so that a signer's rows lie apart.
type filler struct {
	signers func(ctx context.Context, conn *pgx.Conn, st stored) error
	nonces  string // statement that writes the nonces from $1 to $2 of every signer
}

// fillerOf is that of a heart's schema.
func fillerOf(heart string) filler {
	if heart == newHeart {
		return filler{fillRows, fillHistory}
	}
	return filler{fillSigners, fillAllocations}
}

const fillAllocations = `
INSERT INTO signer_nonce_allocation
       (signer_id, nonce, status, attempt, fencing_token, held_until, created_at, updated_at, tx_hash)
SELECT s.signer_id, n, x.status, 1, 1,
       CASE WHEN x.status = 1 THEN clock_timestamp() + interval '1 day' END, clock_timestamp(), clock_timestamp(),
       CASE WHEN x.status = 3 THEN int8send(s.signer_id) || int8send(n) || int8send(-n) || int8send(-s.signer_id) END
FROM generate_series($1::bigint, $2::bigint) n
CROSS JOIN signer_nonce_state s
CROSS JOIN LATERAL (SELECT CASE
       WHEN s.held = 1 AND n = s.next_nonce - 1 THEN 1
       WHEN s.signer_id % 10 = 5 AND n = s.next_nonce - 2 THEN 2
       ELSE 3 END AS status) x
ORDER BY n, s.signer_id`

// fillKey is which filled database one wants.
type fillKey struct {
	stored
	heart string
}

// filling is what became of making a filled database.
type filling struct {
	name string
	err  error // why there is none
}

// filledDatabase finds a filled database, or makes it. What failed once is not tried
// again: it takes minutes.
func (a *arena) filledDatabase(ctx context.Context, k fillKey) (string, error) {
	f, ok := a.filled[k]
	if !ok {
		f.name, f.err = a.makeFilled(ctx, k)
		a.filled[k] = f
	}
	return f.name, f.err
}

func (a *arena) makeFilled(ctx context.Context, k fillKey) (string, error) {
	begin := time.Now()
	fmt.Fprintf(a.progress, "filling a database: %v\n", k)
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	if err := a.migrate(ctx, a.pg.URL(name), k.heart); err != nil {
		return name, err
	}
	if err := a.fill(ctx, a.pg.URL(name), k); err != nil {
		return name, fmt.Errorf("fill a database: %w", err)
	}
	fmt.Fprintf(a.progress, "filled after %v\n", time.Since(begin).Round(time.Second))
	return name, nil
}

// migrate has the gateway make its tables.
func (a *arena) migrate(ctx context.Context, url, heart string) error {
	args := append([]string{a.room.Dir() + "/gateway", "migrate", "--store", url}, heartFlags(heart)...)
	p, err := a.room.Start("migrate.log", cleanEnvironment(), args...)
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

func (a *arena) fill(ctx context.Context, url string, k fillKey) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	f := fillerOf(k.heart)
	if err := f.signers(ctx, conn, k.stored); err != nil {
		return fmt.Errorf("signers: %w", err)
	}
	step := max(1, piece/k.signers)
	for from := 0; from < k.each; from += step {
		to := min(from+step, k.each) - 1
		if _, err := conn.Exec(ctx, f.nonces, from, to); err != nil {
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

// fillSigners writes the signers of today's heart.
func fillSigners(ctx context.Context, conn *pgx.Conn, st stored) error {
	now := time.Now()
	err := copySigners(ctx, conn, st, "signer_nonce_state", []string{"signer", "next_nonce", "version", "fencing_token", "updated_at"},
		func(_ int, name string) []any {
			return []any{name, int64(st.each), int64(st.each), int64(2), now}
		})
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `UPDATE signer_nonce_state SET held = 1 WHERE signer_id % 10 = 0`)
	return err
}

// copySigners writes the signers in an order without order, the same each time: the accounts
// of a load, which have numbers in a row, lie all over the table. row makes the columns of a
// signer by its name and its id, which are given in a row from 1 on.
func copySigners(ctx context.Context, conn *pgx.Conn, st stored, table string, columns []string, row func(id int, name string) []any) error {
	accounts := traffic.Signers{Count: st.signers}
	order := rand.New(rand.NewPCG(1, 1)).Perm(st.signers)
	_, err := conn.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(st.signers, func(i int) ([]any, error) {
		return row(i+1, accounts.Name(order[i])), nil
	}))
	return err
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
