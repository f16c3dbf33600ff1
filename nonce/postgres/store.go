package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultShards is how many shards a new database gets.
const DefaultShards = 32

// shardLevel is the breaking level of the schema that this program understands.
const shardLevel = 1

// SchemaError says that the database was reached, and why its schema is not what this
// program needs.
type SchemaError struct{ err error }

func (e *SchemaError) Error() string { return e.err.Error() }

// Unwrap returns what the database, or the migration, said.
func (e *SchemaError) Unwrap() error { return e.err }

func (s *Store) prepare(ctx context.Context, shards int, cfg Config) error {
	if err := s.refuseForeign(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return &SchemaError{err}
	}
	if err := s.count(ctx, shards); err != nil {
		return err
	}
	pc, err := poolConfig(cfg)
	if err != nil {
		return err
	}
	pc.MaxConns, pc.MinConns = 1, 0
	beats, err := s.connect(ctx, pc, cfg)
	if err != nil {
		return err
	}
	if err := beats.Ping(ctx); err != nil { // beside a connection of the other pool: see remember
		beats.Close()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats = beats
	return nil
}

// refuseForeign refuses a database in which another program, or one before the first release,
// has made tables of the same names.
func (s *Store) refuseForeign(ctx context.Context) error {
	var foreign bool
	err := s.pool.QueryRow(ctx, `SELECT to_regclass('gateway_node') IS NOT NULL AND to_regclass('shard') IS NULL`).Scan(&foreign)
	if err == nil && foreign {
		err = errors.New("the database has a table gateway_node and no table shard: its schema is none of this program's; name another database, and raise the floors of its signers to where they are")
	}
	return err
}

// count reads how many shards there are, and makes those of a new database.
func (s *Store) count(ctx context.Context, want int) error {
	const countShards = `SELECT count(*) FROM shard`
	if err := s.pool.QueryRow(ctx, countShards).Scan(&s.shards); err != nil {
		return err
	}
	if s.shards == 0 {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `LOCK TABLE shard IN SHARE ROW EXCLUSIVE MODE`) // several nodes may start
			if err == nil {
				_, err = tx.Exec(ctx, `INSERT INTO shard (shard_id) SELECT generate_series(0, $1 - 1) WHERE NOT EXISTS (SELECT FROM shard)`, cmp.Or(want, DefaultShards))
			}
			if err != nil {
				return err
			}
			return tx.QueryRow(ctx, countShards).Scan(&s.shards)
		})
		if err != nil {
			return fmt.Errorf("make the shards: %w", err)
		}
	}
	if want != 0 && want != s.shards {
		return fmt.Errorf("the database has %d shards, and %d are wanted; their number is fixed when the database is made", s.shards, want)
	}
	return nil
}

// Shards implements nonce.Store.
func (s *Store) Shards() int { return s.shards }

// roundTrip sends a batch, which is one transaction.
func roundTrip(ctx context.Context, pool *pgxpool.Pool, doing string, b *pgx.Batch) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return notSent(doing, err)
	}
	defer conn.Release()
	err = conn.SendBatch(ctx, b).Close()
	if syncRepCancelled(conn.Conn().PgConn()) && err == nil {
		return errSyncRep
	}
	return storeError(doing, err)
}

// change runs one statement that writes, and returns how many rows it changed; with an error none,
// because a server that crashes sends what it did before the commit, too.
func (s *Store) change(ctx context.Context, doing, text string, args ...any) (rows int, err error) {
	return s.changeLast(ctx, doing, &pgx.Batch{}, text, args...)
}

// changeLast is change at the end of a batch.
func (s *Store) changeLast(ctx context.Context, doing string, b *pgx.Batch, text string, args ...any) (rows int, err error) {
	b.Queue(text, args...).Exec(func(done pgconn.CommandTag) error {
		rows = int(done.RowsAffected())
		return nil
	})
	if err := roundTrip(ctx, s.pool, doing, b); err != nil {
		return 0, err
	}
	return rows, nil
}

// moment sends a batch that only reads, in one round trip and so that all is of one moment.
// Whatever its error says, nothing happened.
func (s *Store) moment(ctx context.Context, doing string, queue func(*pgx.Batch)) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
	queue(b)
	b.Queue(`COMMIT`)
	err = conn.SendBatch(ctx, b).Close()
	if err != nil && conn.Conn().PgConn().TxStatus() != 'I' {
		rollback(ctx, conn)
	}
	return nothingCommitted(doing, err)
}

// clock reads the store's clock, in Unix milliseconds.
func (s *Store) clock(ctx context.Context) (now int64, err error) {
	err = s.moment(ctx, "read the clock", func(b *pgx.Batch) {
		b.Queue(`SELECT store_millis()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	})
	return now, err
}
