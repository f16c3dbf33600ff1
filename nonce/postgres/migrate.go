package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// SchemaLevel is the breaking level this program understands. Migrations that
// only add leave a database's level alone; one that breaks older programs raises
// it, and those refuse the database. Level 2 is that of a database whose signers may
// be of the performance engine; it goes back to 1 when they have returned.
const SchemaLevel = 2

// migrateWait is how many seconds another node's migration is waited for.
const migrateWait = 300

// Migrate brings the schema up to date, under an advisory lock so that nodes that
// start together do it once, and returns how many migrations it ran.
func (s *Store) Migrate(ctx context.Context) (int, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, err
	}
	if err := s.refuseTable(ctx, "shard"); err != nil {
		return 0, err
	}
	done, err := s.migrateWith(ctx, files, "noncegate_migration")
	if err != nil {
		return 0, err
	}
	return done, s.checkLevel(ctx, SchemaLevel)
}

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
