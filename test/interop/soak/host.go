package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// host is what the parts of a run live in: it owns their goroutines and what has to be closed, and is the T of package chaintest.
type host struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	out    io.Writer
	began  time.Time
	wg     sync.WaitGroup

	lock     sync.Mutex // guards cleanups and out
	cleanups []func()
}

var errEnded = errors.New("the run has ended")

// fatal is what Fatalf panics with.
type fatal struct{ error }

func newHost(ctx context.Context, out io.Writer) *host {
	ctx, cancel := context.WithCancelCause(ctx)
	return &host{ctx: ctx, cancel: cancel, out: out, began: time.Now()}
}

func (h *host) Helper() {}

func (h *host) Context() context.Context { return h.ctx }

// Logf writes a line that begins with the seconds since the start.
func (h *host) Logf(format string, args ...any) {
	h.lock.Lock()
	defer h.lock.Unlock()
	fmt.Fprintf(h.out, "%6.1f  %s\n", time.Since(h.began).Seconds(), fmt.Sprintf(format, args...))
}

// Fatalf ends what calls it; within spawn, that ends the run.
func (h *host) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

func (h *host) must(err error) {
	if err != nil {
		panic(fatal{err})
	}
}

func (h *host) Cleanup(f func()) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) closing(what string, end func() error) {
	h.Cleanup(func() {
		if err := end(); err != nil {
			h.Logf("%s: %v", what, err)
		}
	})
}

// try runs f and returns what Fatalf was called with in it.
func (h *host) try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			err = f.error
		}
	}()
	f()
	return nil
}

// spawn runs f in a goroutine that close waits for. A Fatalf in it ends the run.
func (h *host) spawn(f func()) {
	h.wg.Go(func() {
		if err := h.try(f); err != nil {
			h.cancel(err)
		}
	})
}

// close ends the goroutines and then everything else, the newest first, and returns what ended the run before.
func (h *host) close() error {
	h.cancel(errEnded)
	h.wg.Wait()
	for _, f := range slices.Backward(h.cleanups) { // nobody adds to them any more
		f()
	}
	if cause := context.Cause(h.ctx); cause != errEnded {
		return cause
	}
	return nil
}

// sleep waits, and reports whether the context still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
