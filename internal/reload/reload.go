// Package reload keeps the last value read from a file, a URL or a table. If a reading
// fails, the previous value stays in force; the package logs the error at its first
// occurrence and whenever its text changes, and callers can ask for it.
//
// Each Value owns one goroutine, in which every reading after the first happens, one
// at a time and each with a timeout. Stop ends and waits for it. Get may be called by
// any goroutine at any time; it takes no lock.
package reload

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Config are the settings of a Value. Name and Every are required.
type Config struct {
	// Name is what is read, for the log: "the rights file".
	Name string
	// Every is the time from the end of a reading to the start of the next.
	Every time.Duration
	// Retry is the same after a reading that failed. 0: Every.
	Retry time.Duration
	// Gap is the least time between two readings that Again asks for. 0: a second.
	Gap time.Duration
	// Timeout bounds a reading. 0: five seconds.
	Timeout time.Duration
	// Log is told when readings begin to fail and when they succeed again. It may be nil.
	Log *slog.Logger
}

// ErrStopped is returned by Again once Stop was called.
var ErrStopped = errors.New("stopped")

// Load reads the value. old is the one in force, nil at first; it may be returned
// again. Its context ends with the Value's timeout, or with Stop.
type Load[T any] func(ctx context.Context, old *T) (*T, error)

// Value is what was read last. Make it with Open or OpenLater.
type Value[T any] struct {
	cfg  Config
	load Load[T]

	now  atomic.Pointer[T]
	asks chan struct{} // a caller waits for a reading; capacity 1, as one is enough for all
	stop context.CancelCauseFunc
	done chan struct{} // closed when the goroutine has ended

	changes, failures atomic.Int64

	mu     sync.Mutex    // guards what follows
	ended  time.Time     // when the last reading ended
	good   time.Time     // when the last reading began that succeeded
	err    error         // of the last reading; nil: it succeeded
	active bool          // a reading is under way
	next   chan struct{} // closed at its end, or at that of the next one
}

// Open reads for the first time and starts the goroutine. An error of that reading is
// returned, and then there is no Value. The goroutine outlives ctx: Stop ends it.
func Open[T any](ctx context.Context, cfg Config, load Load[T]) (*Value[T], error) {
	v := newValue(cfg, load)
	if err := v.read(ctx); err != nil {
		return nil, err
	}
	v.start(ctx)
	return v, nil
}

// OpenLater is Open where a first reading that fails is like any other: Get returns
// nil until one succeeds.
func OpenLater[T any](ctx context.Context, cfg Config, load Load[T]) *Value[T] {
	v := newValue(cfg, load)
	v.report(nil, v.read(ctx))
	v.start(ctx)
	return v
}

func newValue[T any](cfg Config, load Load[T]) *Value[T] {
	cfg.Retry = cmp.Or(cfg.Retry, cfg.Every)
	cfg.Gap = cmp.Or(cfg.Gap, time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Value[T]{cfg: cfg, load: load, asks: make(chan struct{}, 1), next: make(chan struct{}), done: make(chan struct{})}
}

func (v *Value[T]) start(ctx context.Context) {
	ctx, v.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go v.run(ctx)
}

// Get returns the value in force; nil: none was ever read.
func (v *Value[T]) Get() *T { return v.now.Load() }

// State returns when the value in force was last found good, and the error of the
// last reading: nil means that the value in force is what was read.
func (v *Value[T]) State() (good time.Time, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.good, v.err
}

// Changes counts the readings, beyond the first, that brought another value.
func (v *Value[T]) Changes() int64 { return v.changes.Load() }

// Failures counts the errors that were logged: not each reading that failed.
func (v *Value[T]) Failures() int64 { return v.failures.Load() }

// Again waits for the reading that is under way, or else for a new one, and returns its
// error. When one ended less than Config.Gap ago, that one has to do and its error is
// returned at once. So any number of callers cost one reading a Gap.
func (v *Value[T]) Again(ctx context.Context) error {
	v.mu.Lock()
	if !v.active && time.Since(v.ended) < v.cfg.Gap {
		defer v.mu.Unlock()
		return v.err
	}
	next := v.next
	if !v.active {
		select {
		case v.asks <- struct{}{}:
		default: // another caller's is still there
		}
	}
	v.mu.Unlock()
	select {
	case <-next:
		_, err := v.State()
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-v.done:
		return ErrStopped
	}
}

// Soon has a reading begin now, however long ago the last was. It does not wait for it.
func (v *Value[T]) Soon() {
	select {
	case v.asks <- struct{}{}:
	default: // another caller has asked already
	}
}

// Stop ends the goroutine and waits for it. It may be called more than once.
func (v *Value[T]) Stop() {
	v.stop(ErrStopped)
	<-v.done
}

func (v *Value[T]) run(ctx context.Context) {
	defer close(v.done)
	for {
		wait := v.cfg.Every
		_, before := v.State()
		if before != nil {
			wait = v.cfg.Retry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-v.asks:
		}
		err := v.read(ctx)
		if ctx.Err() != nil {
			return // a reading that Stop cut short says nothing
		}
		v.report(before, err)
	}
}

// read does one reading and keeps what it found.
func (v *Value[T]) read(ctx context.Context) error {
	v.mu.Lock()
	v.active = true
	select {
	case <-v.asks: // this is the reading that was asked for
	default:
	}
	v.mu.Unlock()

	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
	defer cancel()
	read, err := v.load(ctx, v.now.Load())

	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended, v.err, v.active = time.Now(), err, false
	if err == nil {
		v.good = began
		if old := v.now.Swap(read); old != nil && old != read {
			v.changes.Add(1)
		}
	}
	close(v.next)
	v.next = make(chan struct{})
	return err
}

// report logs what changed between two readings: not each failure of many.
func (v *Value[T]) report(before, err error) {
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		v.failures.Add(1)
		v.cfg.Log.Error(v.cfg.Name+" cannot be used; what was read before stays in force", "error", err)
	case err == nil && before != nil:
		v.cfg.Log.Info(v.cfg.Name + " can be used again")
	}
}
