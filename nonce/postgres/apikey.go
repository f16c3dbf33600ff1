package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/access/apikey"
)

var _ apikey.Store = (*Store)(nil)

// keyColumns are those that scanKey reads.
const keyColumns = `id, principal, hash, created_at, expires_at, revoked_at`

// changeKeys runs fn in a transaction that is the only one to change keys: it has
// locked the row of the generation, and given it a new number.
func (s *Store) changeKeys(ctx context.Context, doing string, fn func(pgx.Tx) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return storeError(doing, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '5s'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE auth_key_generation SET number = $1`, apikey.NewGeneration()); err != nil {
			return err
		}
		return fn(tx)
	}))
}

// CreateKey implements apikey.Store. The keys of the principal are found by their
// index; counting all, at most apikey.MaxKeys, reads the table from end to end.
func (s *Store) CreateKey(ctx context.Context, r apikey.Request) (k apikey.Key, err error) {
	var refused error
	err = s.changeKeys(ctx, "create the API key", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			DELETE FROM auth_key WHERE least(revoked_at, expires_at) < clock_timestamp() - $1::bigint * interval '1 microsecond'`,
			apikey.Remembered.Microseconds())
		if err != nil {
			return err
		}
		var all, live int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM auth_key`).Scan(&all); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			SELECT count(*) FROM auth_key
			WHERE principal = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())`, r.Principal).Scan(&live)
		if err != nil {
			return err
		}
		if refused = apikey.Room(all, live); refused != nil {
			return refused
		}
		k, err = scanKey(tx.QueryRow(ctx, `
			INSERT INTO auth_key (id, principal, hash, created_at, expires_at)
			SELECT $1, $2, $3, now, now + nullif($4::bigint, 0) * interval '1 microsecond' FROM clock_timestamp() AS t(now)
			RETURNING `+keyColumns, r.ID, r.Principal, r.Hash[:], r.Lifetime.Microseconds()))
		return err
	})
	if refused != nil {
		return apikey.Key{}, refused
	}
	return k, err
}

// RevokeKey implements apikey.Store.
func (s *Store) RevokeKey(ctx context.Context, id string) (k apikey.Key, err error) {
	err = s.changeKeys(ctx, "revoke the API key", func(tx pgx.Tx) error {
		k, err = scanKey(tx.QueryRow(ctx, `
			UPDATE auth_key SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE id = $1 RETURNING `+keyColumns, id))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return apikey.Key{}, apikey.ErrUnknown
	}
	return k, err
}

// Keys implements apikey.Store, in one statement and so of one moment: the keys are
// read where the generation is another one, and the row of the generation is there in
// any case.
func (s *Store) Keys(ctx context.Context, known int64) (list apikey.Listing, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return apikey.Listing{}, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, `
		SELECT g.number, clock_timestamp(), coalesce(k.id, ''), coalesce(k.principal, ''), k.hash, coalesce(k.created_at, 'epoch'), k.expires_at, k.revoked_at
		FROM auth_key_generation g LEFT JOIN auth_key k ON g.number <> $1
		ORDER BY k.principal, k.created_at, k.id`, known)
	if err != nil {
		return apikey.Listing{}, storeError("read the API keys", err)
	}
	var k apikey.Key
	var hash []byte
	var expires, revoked *time.Time
	read := 0
	_, err = pgx.ForEachRow(rows, []any{&list.Generation, &list.Now, &k.ID, &k.Principal, &hash, &k.Created, &expires, &revoked}, func() error {
		read++
		if k.ID == "" {
			return nil // there is none, or they are known; the row carries the generation
		}
		list.Keys = append(list.Keys, completeKey(k, hash, expires, revoked))
		return nil
	})
	if err == nil && read == 0 {
		err = errors.New("the table auth_key_generation is empty; restore it from a backup")
	}
	if err != nil {
		return apikey.Listing{}, storeError("read the API keys", err)
	}
	return list, nil
}

func scanKey(row pgx.Row) (apikey.Key, error) {
	var k apikey.Key
	var hash []byte
	var expires, revoked *time.Time
	if err := row.Scan(&k.ID, &k.Principal, &hash, &k.Created, &expires, &revoked); err != nil {
		return apikey.Key{}, err
	}
	return completeKey(k, hash, expires, revoked), nil
}

func completeKey(k apikey.Key, hash []byte, expires, revoked *time.Time) apikey.Key {
	copy(k.Hash[:], hash)
	k.Expires, k.Revoked = orNever(expires), orNever(revoked)
	return k
}

func orNever(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
