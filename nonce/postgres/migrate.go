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

// migrate runs the migrations that are missing, and checks that no later version has broken the
// schema for this one.
func (s *Store) migrate(ctx context.Context) error {
	cc := s.pool.Config().ConnConfig.Copy()
	for k := range runtimeParams() {
		delete(cc.RuntimeParams, k) // a migration may scan, wait and take its time
	}
	db := stdlib.OpenDB(*cc)
	defer db.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrateWait))
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker), goose.WithTableName("noncegate_migration"))
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	var level int
	err = s.pool.QueryRow(ctx, `SELECT breaking_level FROM noncegate_schema`).Scan(&level)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errors.New("the table noncegate_schema is empty; restore it from a backup")
	case err != nil:
		return fmt.Errorf("read the schema level: %w", err)
	case level > shardLevel:
		return fmt.Errorf("the database's schema is at breaking level %d and this program knows %d; upgrade the program", level, shardLevel)
	}
	return nil
}
