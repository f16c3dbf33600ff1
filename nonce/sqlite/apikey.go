package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"noncegate/internal/access/apikey"
)

var _ apikey.Store = (*Store)(nil)

// API keys, by primary key, and by the index of their principal. A count of all and
// the list read the table from end to end: at most apikey.MaxKeys rows.
const (
	sqlKeyColumns = `id, principal, hash, created_at, expires_at, revoked_at`

	sqlKeyGeneration = `SELECT number FROM auth_key_generation`

	sqlKeyChange = `UPDATE auth_key_generation SET number = ?`

	// min of two is NULL when one is; each counts alone here.
	sqlKeyForget = `DELETE FROM auth_key WHERE revoked_at < ?1 OR expires_at < ?1`

	sqlKeyCount = `SELECT count(*) FROM auth_key`

	sqlKeyLive = `
SELECT count(*) FROM auth_key WHERE principal = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)`

	sqlKeyInsert = `INSERT INTO auth_key (id, principal, hash, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`

	sqlKeyRevoke = `UPDATE auth_key SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?`

	sqlKey = `SELECT ` + sqlKeyColumns + ` FROM auth_key WHERE id = ?`

	sqlKeys = `SELECT ` + sqlKeyColumns + ` FROM auth_key ORDER BY principal, created_at, id`
)

// changeKeys runs fn in a transaction that gives the keys a new generation.
func (s *Store) changeKeys(ctx context.Context, fn func(context.Context, *session) error) error {
	return s.write(ctx, func(ctx context.Context, c *session) error {
		if _, err := c.exec(ctx, sqlKeyChange, apikey.NewGeneration()); err != nil {
			return err
		}
		return fn(ctx, c)
	})
}

// CreateKey implements apikey.Store.
func (s *Store) CreateKey(ctx context.Context, r apikey.Request) (k apikey.Key, err error) {
	err = s.changeKeys(ctx, func(ctx context.Context, c *session) error {
		now := s.now()
		if _, err := c.exec(ctx, sqlKeyForget, now.Add(-apikey.Remembered).UnixMicro()); err != nil {
			return err
		}
		all, err := c.count(ctx, sqlKeyCount)
		if err != nil {
			return err
		}
		live, err := c.count(ctx, sqlKeyLive, r.Principal, now.UnixMicro())
		if err != nil {
			return err
		}
		if err := apikey.Room(int(all), int(live)); err != nil {
			return errPlan{err}
		}
		var expires sql.NullInt64
		if r.Lifetime > 0 {
			expires = sql.NullInt64{Int64: now.Add(r.Lifetime).UnixMicro(), Valid: true}
		}
		if _, err := c.exec(ctx, sqlKeyInsert, r.ID, r.Principal, r.Hash[:], now.UnixMicro(), expires); err != nil {
			return err
		}
		k, err = c.key(ctx, r.ID)
		return err
	})
	return k, err
}

// RevokeKey implements apikey.Store.
func (s *Store) RevokeKey(ctx context.Context, id string) (k apikey.Key, err error) {
	err = s.changeKeys(ctx, func(ctx context.Context, c *session) error {
		n, err := c.exec(ctx, sqlKeyRevoke, s.now().UnixMicro(), id)
		if err != nil {
			return err
		}
		if n == 0 {
			return errPlan{apikey.ErrUnknown}
		}
		k, err = c.key(ctx, id)
		return err
	})
	return k, err
}

// Keys implements apikey.Store.
func (s *Store) Keys(ctx context.Context, known int64) (list apikey.Listing, err error) {
	err = s.read(ctx, func(ctx context.Context, c *session) error {
		list = apikey.Listing{Now: s.now()}
		found, err := c.one(ctx, []any{&list.Generation}, sqlKeyGeneration)
		if err == nil && !found {
			err = errors.New("the table auth_key_generation is empty; restore it from a backup")
		}
		if err != nil || list.Generation == known {
			return err
		}
		return c.each(ctx, func(scan func(...any) error) error {
			k, err := scanKey(scan)
			list.Keys = append(list.Keys, k)
			return err
		}, sqlKeys)
	})
	if err != nil {
		return apikey.Listing{}, err
	}
	return list, nil
}

// key reads the key of an id, which is there.
func (c *session) key(ctx context.Context, id string) (k apikey.Key, err error) {
	err = c.each(ctx, func(scan func(...any) error) error {
		k, err = scanKey(scan)
		return err
	}, sqlKey, id)
	return k, err
}

func scanKey(scan func(...any) error) (k apikey.Key, err error) {
	var hash []byte
	var created int64
	var expires, revoked sql.NullInt64
	if err := scan(&k.ID, &k.Principal, &hash, &created, &expires, &revoked); err != nil {
		return apikey.Key{}, err
	}
	copy(k.Hash[:], hash)
	k.Created, k.Expires, k.Revoked = timeOf(created), orNever(expires), orNever(revoked)
	return k, nil
}

func orNever(micro sql.NullInt64) time.Time {
	if !micro.Valid {
		return time.Time{}
	}
	return timeOf(micro.Int64)
}

// timeOf is the time of a column, where 0 is none.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
