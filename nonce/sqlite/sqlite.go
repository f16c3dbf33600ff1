// Package sqlite is the embedded store: one file, one process, no server.
//
// It promises what nonce.Store asks for, with every commit on disk before it is
// answered (write-ahead log, synchronous=FULL). Writes go through one connection,
// one transaction at a time; readers have connections of their own and see one
// consistent state a call. The store's clock is the process's wall clock, read
// once a transaction: with one process to a file there is no other to agree with.
//
// It does not promise to survive an I/O error. When a COMMIT fails so that
// it is unknown whether it will be there after a restart, the caller is told Unknown,
// every later write is refused, and Config.Fatal is called so that the process
// can end. It starts no goroutine, and has no lock but that of the count of totals: the writing
// session and the readers are taken from channels.
//
// Where to begin reading: store.go, session.go, commit.go, file.go (what is done before SQLite
// opens the file).
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/nonce"
)

// Config is what Open takes beside the path. The zero value is good for tests.
type Config struct {
	// Now is the store's clock; nil is time.Now.
	Now func() time.Time
	// Fatal is called once, in the goroutine of the write that met it, when an
	// error of COMMIT left unknown what is on disk. The process should end. It
	// may be nil: writes are refused from then on in any case.
	Fatal func(error)
}

const (
	// readers is how many connections read at the same time. More would only
	// compete for the processors.
	readers        = 4
	readerCacheKiB = 4 << 10
	writerCacheKiB = 64 << 10
	// busyTimeout bounds the wait for a program that has the file open in spite
	// of the lock, such as the sqlite3 shell.
	busyTimeout = 2 * time.Second
	// checkpointPages is how long the log grows before its pages are written
	// back, in pages of 4 KiB. A page that many commits changed is written once,
	// so a long log saves writes; it costs disk space and a slower start.
	checkpointPages = 8192
)

// Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	cfg    Config
	path   string // with links resolved
	lock   *flock.Flock
	db     *sql.DB
	writer chan *session // the one writing session, when free
	reader chan *session // the reading sessions that are free
	broken atomic.Pointer[error]
	shards int
	totals nonce.TotalsWalk
}

// Open opens the database at path, creates it with so many shards when it is missing, and
// migrates it; 0 is as many as there are, or DefaultShards. An error is a sentence that names the
// file.
func Open(ctx context.Context, path string, shards int, cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	path, lock, err := claim(path)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, path: path, lock: lock, writer: make(chan *session, 1), reader: make(chan *session, readers)}
	if err = s.connect(ctx, path, files); err == nil {
		err = s.count(ctx, path, shards)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect migrates the file and opens all sessions.
func (s *Store) connect(ctx context.Context, path string, files fs.FS) (err error) {
	if s.db, err = sql.Open("sqlite", dsn(path)); err != nil {
		return fmt.Errorf("sqlite store %q: %w", path, err)
	}
	s.db.SetMaxOpenConns(1 + readers)
	if err := migrate(ctx, s.db, path, files); err != nil {
		return err
	}
	if err := s.openSessions(ctx, readers); err != nil {
		return fmt.Errorf("sqlite store %q: %w", path, err)
	}
	return nil
}

// openSessions opens the writing session and so many that read.
func (s *Store) openSessions(ctx context.Context, readers int) error {
	for _, free := range append(slices.Repeat([]chan *session{s.reader}, readers), s.writer) {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		c := &session{conn: conn, prepared: make(map[string]*sql.Stmt)}
		free <- c
		if free == s.writer {
			_, err = c.exec(ctx, fmt.Sprintf("PRAGMA cache_size = -%d", writerCacheKiB))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dsn is the data source name of a file. It carries the settings of every
// connection.
func dsn(path string) string {
	settings := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"fullfsync(1)", // on macOS, fsync alone leaves data in the drive
		"checkpoint_fullfsync(1)",
		fmt.Sprintf("wal_autocheckpoint(%d)", checkpointPages),
		fmt.Sprintf("cache_size(-%d)", readerCacheKiB),
		"temp_store(MEMORY)",
	}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + settings.Encode()
}

// Name is "sqlite".
func (s *Store) Name() string { return "sqlite" }

// Generation is always the same: a file that this process has locked does not become
// another one.
func (s *Store) Generation() uint64 { return 1 }

// Ping reports whether the file can be read and writes are not refused.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return s.read(ctx, func(ctx context.Context, c *session) error {
		_, err := c.count(ctx, "SELECT count(*) FROM schema_breaking")
		return err
	})
}

// Close closes the file and gives its lock back.
func (s *Store) Close() error {
	var errs []error
	for _, free := range []chan *session{s.reader, s.writer} {
		for range len(free) {
			errs = append(errs, (<-free).close())
		}
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// now is the store's clock.
func (s *Store) now() time.Time { return s.cfg.Now().Truncate(time.Microsecond) }
