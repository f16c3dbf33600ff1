package tlsfiles

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"noncegate/internal/reload"
)

// defaultEvery is how often files are read unless a Config says otherwise. A renewed
// certificate is in force after at most this time.
const defaultEvery = 5 * time.Second

// maxFile bounds a file: a bundle of every public authority has a quarter of it.
const maxFile = 1 << 20

// files makes a T of files, and another when their contents change.
type files[T any] struct{ value *reload.Value[T] }

// open reads the files and begins to look after them. A certificate and its key are two
// files: between the writing of one and the other they do not match, and the next
// reading finds that they do.
func open[T any](names []string, every time.Duration, log *slog.Logger, parse func([][]byte) (*T, error)) (files[T], error) {
	load := reload.Files(names, maxFile, func(contents [][]byte) (*T, error) {
		v, err := parse(contents)
		if err == nil {
			log.Info("TLS files are in force", "files", names)
		}
		return v, err
	})
	cfg := reload.Config{Name: "TLS files", Every: cmp.Or(every, defaultEvery), Log: log}
	value, err := reload.Open(context.Background(), cfg, load)
	return files[T]{value}, err
}

// Soon has the files read now. It does not wait for that.
func (f files[T]) Soon() { f.value.Soon() }

// Stop ends the reading; what is in force stays so. It may be called twice.
func (f files[T]) Stop() { f.value.Stop() }

// Stale reports whether the files have changed to something that cannot be used.
func (f files[T]) Stale() bool {
	_, err := f.value.State()
	return err != nil
}

// Reloads counts changes that were taken.
func (f files[T]) Reloads() int64 { return f.value.Changes() }

// Failures counts changes that could not be used.
func (f files[T]) Failures() int64 { return f.value.Failures() }
