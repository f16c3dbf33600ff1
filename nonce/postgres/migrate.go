package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// migrateWait is how many seconds another node's migration is waited for.
const migrateWait = 300

// migrateWith runs those of the migrations that the table does not list yet.
func (s *Store) migrateWith(ctx context.Context, files fs.FS, table string) (int, error) {
	cc := s.pool.Config().ConnConfig.Copy()
	for k := range runtimeParams() {
		delete(cc.RuntimeParams, k) // a migration may scan, wait and take its time
	}
	db := stdlib.OpenDB(*cc)
	defer db.Close()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrateWait))
	if err != nil {
		return 0, err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker),
		goose.WithTableName(table))
	if err != nil {
		return 0, err
	}
	done, err := p.Up(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	return len(done), nil
}

func (s *Store) checkLevel(ctx context.Context, known int) error {
	var level int
	err := s.pool.QueryRow(ctx, `SELECT breaking_level FROM noncegate_schema`).Scan(&level)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errors.New("the table noncegate_schema is empty; restore it from a backup")
	case err != nil:
		return fmt.Errorf("read the schema level: %w", err)
	case level > known:
		return fmt.Errorf("the database's schema is at breaking level %d and this program knows %d; upgrade the program", level, known)
	}
	return nil
}
