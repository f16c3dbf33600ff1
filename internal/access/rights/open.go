package rights

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"noncegate/internal/reload"
)

// Config are the settings of a File.
type Config struct {
	// Every is how often the file is read, and so how soon a change counts. 0: 2s.
	Every time.Duration
	// Log is told of every file that comes into force, with its hash, and of every one
	// that cannot be used. nil: nobody.
	Log *slog.Logger
}

// File is a rights file that is read again and again. Its methods may be called by any
// goroutine.
type File struct {
	path string
	log  *slog.Logger
	v    *reload.Value[Rights]
}

// Open reads the file, which must be good, and goes on reading it until Stop. The
// error is a sentence that names the file.
func Open(ctx context.Context, path string, cfg Config) (*File, error) {
	f := &File{path: path, log: cfg.Log}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	var err error
	f.v, err = reload.Open(ctx, reload.Config{Name: "the rights file", Every: cmp.Or(cfg.Every, 2*time.Second), Log: f.log}, f.read)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Stop ends the reading. What was read stays in force.
func (f *File) Stop() { f.v.Stop() }

// Soon has the file read now. It does not wait for that.
func (f *File) Soon() { f.v.Soon() }

// Rights returns what is in force.
func (f *File) Rights() *Rights { return f.v.Get() }

// State returns when the rights in force were last found to be those of the file, and
// why those of the file are not in force: nil, they are.
func (f *File) State() (good time.Time, err error) { return f.v.State() }

// read reads the whole file each time: times of change and sizes may stay the same
// although the text does not, and links to files are exchanged as a whole.
func (f *File) read(_ context.Context, old *Rights) (*Rights, error) {
	text, err := readFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("rights file %q: %w", f.path, err)
	}
	if sum := sha256.Sum256(text); old != nil && old.hash == hex.EncodeToString(sum[:]) {
		return old, nil
	}
	r, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("rights file %q: %w", f.path, err)
	}
	principals, patterns := r.Size()
	f.log.Info("rights are in force", "file", f.path, "sha256", r.hash, "principals", principals, "patterns", patterns)
	return r, nil
}

// readFile reads at most one byte more than is allowed, so that Parse sees that it is
// too much.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path) // #nosec G304 -- the file that the operator named
	if err != nil {
		return nil, plain(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	return text, plain(err)
}

// plain drops the operation and path of an error of package os; the sentence names the
// file already.
func plain(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
