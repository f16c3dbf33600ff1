package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"noncegate/internal/access/apikey"
)

// Beside is the API keys of a file that another process has. One process at a time may
// hand out nonces from a file, but a key has to be revoked while it does.
type Beside struct{ s *Store }

var _ apikey.Store = (*Beside)(nil)

// OpenBeside opens the file at path next to the process that has it. It neither makes
// nor migrates it, and takes no lock but those of SQLite's own transactions.
func OpenBeside(ctx context.Context, path string) (*Beside, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite store %q cannot be opened: %w", path, plain(err))
	}
	s := &Store{cfg: Config{Now: time.Now}, lock: flock.New(real + ".lock"), writer: make(chan *session, 1), reader: make(chan *session, readers)}
	if err := s.connectBeside(ctx, path, real); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Beside{s}, nil
}

// connectBeside opens one session to read and one to write.
func (s *Store) connectBeside(ctx context.Context, path, real string) (err error) {
	if s.db, err = sql.Open("sqlite", dsn(real)+"&mode=rw"); err != nil {
		return fmt.Errorf("sqlite store %q: %w", path, err)
	}
	if err := s.openSessions(ctx, 1); err != nil {
		return fmt.Errorf("sqlite store %q: %w", path, err)
	}
	var tables int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name = 'auth_key_generation'").Scan(&tables); err != nil {
		return fmt.Errorf("sqlite store %q: read schema: %w", path, err)
	}
	if tables == 0 {
		return fmt.Errorf("sqlite store %q is in use by a version that has no API keys; stop it first", path)
	}
	return nil
}

// Close closes the file.
func (b *Beside) Close() error { return b.s.Close() }

// CreateKey implements apikey.Store.
func (b *Beside) CreateKey(ctx context.Context, r apikey.Request) (apikey.Key, error) {
	return b.s.CreateKey(ctx, r)
}

// RevokeKey implements apikey.Store.
func (b *Beside) RevokeKey(ctx context.Context, id string) (apikey.Key, error) {
	return b.s.RevokeKey(ctx, id)
}

// Keys implements apikey.Store.
func (b *Beside) Keys(ctx context.Context, known int64) (apikey.Listing, error) {
	return b.s.Keys(ctx, known)
}
