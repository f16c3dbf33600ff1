package tlsfiles

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Every is how often files are looked at unless a Config says otherwise. A renewed
// certificate is in force after at most this time.
const Every = 5 * time.Second

// maxFile bounds a file: a bundle of every public authority has a quarter of it.
const maxFile = 1 << 20

// source makes a T of files, and another when their contents change.
type source[T any] struct {
	files []string
	parse func(contents [][]byte) (*T, error)
	log   *slog.Logger

	current  atomic.Pointer[T]
	stale    atomic.Bool // the files are not what is in force
	reloads  atomic.Int64
	failures atomic.Int64

	// seen is what the last look saw: the files' contents, or why they could not
	// be read. Only open and then the goroutine of run use it.
	seen string

	asked   chan struct{} // somebody wants a look now; capacity 1
	stop    chan struct{}
	stopped sync.Once
	running sync.WaitGroup
}

// open reads the files and begins to look after them.
func open[T any](files []string, every time.Duration, log *slog.Logger, parse func([][]byte) (*T, error)) (*source[T], error) {
	s := &source[T]{files: files, parse: parse, log: log, asked: make(chan struct{}, 1), stop: make(chan struct{})}
	v, seen, err := s.read()
	if err != nil {
		return nil, err
	}
	s.seen = seen
	s.current.Store(v)
	if every <= 0 {
		every = Every
	}
	s.running.Go(func() { s.run(every) })
	return s, nil
}

func (s *source[T]) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		case <-s.asked:
		}
		s.look()
	}
}

// Soon has the files looked at now. It does not wait for that.
func (s *source[T]) Soon() {
	select {
	case s.asked <- struct{}{}:
	default: // somebody has asked already
	}
}

// look reads the files, and takes what they hold when it is new and can be used. A
// certificate and its key are two files: between the writing of one and the other
// they do not match, and the next look finds that they do.
func (s *source[T]) look() {
	v, seen, err := s.read()
	if seen == s.seen {
		return
	}
	s.seen = seen
	if err != nil {
		s.stale.Store(true)
		s.failures.Add(1)
		s.log.Error("TLS files have changed and cannot be used; what was read before stays in force", "error", err)
		return
	}
	s.stale.Store(false)
	s.reloads.Add(1)
	s.current.Store(v)
	s.log.Info("TLS files have changed and are in force", "files", s.files)
}

// read returns what the files hold, and what tells these contents from others.
func (s *source[T]) read() (v *T, seen string, err error) {
	contents := make([][]byte, len(s.files))
	digest := sha256.New()
	for i, name := range s.files {
		data, err := readFile(name)
		if err != nil {
			return nil, err.Error(), err
		}
		contents[i] = data
		fmt.Fprintf(digest, "%d\n%s", len(data), data)
	}
	v, err = s.parse(contents)
	return v, string(digest.Sum(nil)), err
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, plain(name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a file", name)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, maxFile)
	}
	data, err := os.ReadFile(name) // #nosec G304 -- the file that the operator named
	if err != nil {
		return nil, plain(name, err)
	}
	return data, nil
}

// plain is an error of a file without the name of the system call.
func plain(name string, err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Stop ends the looking; what is in force stays so. It may be called twice.
func (s *source[T]) Stop() {
	s.stopped.Do(func() { close(s.stop) })
	s.running.Wait()
}

// Stale reports whether the files have changed to something that cannot be used.
func (s *source[T]) Stale() bool { return s.stale.Load() }

// Reloads counts changes that were taken, Failures those that were not.
func (s *source[T]) Reloads() int64 { return s.reloads.Load() }

// Failures counts changes that could not be used.
func (s *source[T]) Failures() int64 { return s.failures.Load() }
