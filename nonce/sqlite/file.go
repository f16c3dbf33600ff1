package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/pressly/goose/v3"
)

// ErrInUse refuses a file that another process has.
var ErrInUse = errors.New("is in use by another process")

// claim locks the file for this process and makes sure that it exists and can be
// written. It returns the path with links resolved, so that one file has one
// lock.
func claim(path string) (string, *flock.Flock, error) {
	real, err := resolve(path)
	if err != nil {
		return "", nil, fmt.Errorf("sqlite store %q cannot be opened: %w", path, plain(err))
	}
	lock := flock.New(real+".lock", flock.SetPermissions(0o600))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return "", nil, fmt.Errorf("sqlite store %q: its lock %q cannot be taken: %w", path, lock.Path(), plain(err))
	case !locked:
		return "", nil, fmt.Errorf("sqlite store %q %w; one process at a time may have it (lock %q)", path, ErrInUse, lock.Path())
	}
	// After the lock: closing a descriptor drops the locks that the same process
	// has on the file through another.
	f, err := os.OpenFile(real, os.O_RDWR|os.O_CREATE, 0o600) // #nosec G304 -- the file that the operator named
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("sqlite store %q cannot be opened for writing: %w", path, plain(err)), lock.Close())
	}
	if err := writeAgain(real + "-wal"); err != nil {
		return "", nil, errors.Join(fmt.Errorf("sqlite store %q: its log cannot be written again: %w", path, plain(err)), lock.Close())
	}
	return real, lock, nil
}

// writeAgain writes the log at path once more, as it is, and syncs it, before
// anything reads it. The process before may have ended because a sync failed. An
// operating system then counts what it could not write as written and does not try
// again, but still shows it; a commit behind such a gap would go with the power.
func writeAgain(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) // #nosec G304 -- the file that the operator named
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(rewrite(f), f.Close())
}

func rewrite(f *os.File) error {
	_, err := io.CopyBuffer(io.NewOffsetWriter(f, 0), io.NewSectionReader(f, 0, math.MaxInt64), make([]byte, 1<<20))
	if err != nil {
		return err
	}
	return f.Sync()
}

// resolve makes the path absolute and follows links; the file itself need not
// exist.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return filepath.EvalSymlinks(path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("its directory: %w", plain(err))
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// plain drops the operation and path of an error of package os; the sentence
// names the file already.
func plain(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// migrate runs the migrations that are missing. Those of a later version stay
// as they are; only one that is marked as breaking is an error.
func migrate(ctx context.Context, db *sql.DB, path string, files fs.FS) error {
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("sqlite store %q: read migrations: %w", path, err)
	}
	sources := provider.ListSources()
	if err := checkSchema(ctx, db, path, sources[len(sources)-1].Version); err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("sqlite store %q: migrate: %w", path, err)
	}
	return nil
}

// checkSchema refuses a file in which another program, or one before the first release, has made
// tables of the same names, and one that a later version marked as breaking. known is the last
// version that this program knows.
func checkSchema(ctx context.Context, db *sql.DB, path string, known int64) error {
	var foreign, marked bool
	var version int64
	var reason string
	err := db.QueryRowContext(ctx, `
SELECT count(*) FILTER (WHERE name = 'gateway_node') > count(*) FILTER (WHERE name = 'shard'), count(*) FILTER (WHERE name = 'schema_breaking') > 0
FROM sqlite_schema WHERE type = 'table'`).Scan(&foreign, &marked)
	if err == nil && marked { // the reason is of the row with the highest version
		err = db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0), coalesce(reason, '') FROM schema_breaking").Scan(&version, &reason)
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlite store %q: read schema: %w", path, err)
	case foreign:
		return fmt.Errorf("sqlite store %q: it has a table gateway_node and no table shard: its schema is none of this program's; name another file, and raise the floors of its signers to where they are", path)
	case version > known:
		return fmt.Errorf("sqlite store %q has schema %d and this program knows %d, which no longer works: %s; use a later version", path, version, known, reason)
	}
	return nil
}
