// Package audit records which principal did what to which signer, as log lines with
// the component "audit".
//
// The caller hands a line to a bounded queue; one goroutine writes the lines. When
// the queue is full, or refusals exceed their rate limit, the package omits a line
// and counts it, and the next written line says how many are missing before it. So
// the written lines are in order, omitted ones are counted, and an audited action
// never waits for the log.
//
// Lines are written at every log level. They hold no secret: a credential is shown
// by its id.
package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Level says what is written.
type Level uint8

// The levels, each of which has what those before it have.
const (
	Off      Level = iota
	Refusals       // logins, ends of sessions, what was refused for want of a right, raised floors
	Changes        // every call that changes something, whatever came of it
	All            // every call
)

var levels = [...]string{"off", "refusals", "changes", "all"}

// String returns the word of a level.
func (l Level) String() string { return levels[l] }

// ParseLevel reads the word of a level.
func ParseLevel(word string) (Level, error) {
	for l, w := range levels {
		if w == word {
			return Level(l), nil
		}
	}
	return Off, fmt.Errorf("%q must be %s", word, strings.Join(levels[:], " or "))
}

// Event is what a line is about.
type Event string

// The events.
const (
	Login        Event = "login"
	LoginRefused Event = "login_refused"
	Logout       Event = "logout"
	TicketIssued Event = "ticket_issued"
	// TicketRefused is a ticket that was asked for in vain, for want of a good credential
	// or for another reason.
	TicketRefused Event = "ticket_refused"
	Call          Event = "call"
)

// Entry is one line. What is empty is left out of it.
type Entry struct {
	At         time.Time
	Event      Event
	Principal  string
	Credential string // its id
	Address    string
	Method     string // of a call; of a login by HTTP, that and the path
	Signer     string
	Nonce      int64 // with HasNonce
	HasNonce   bool
	Count      int // of an allocation of several
	Outcome    string
	Right      string // that was missing
	Why        string // for people
	// Before and After are what an act of an operator changed.
	Before, After string

	missing uint64
}

// Config are the settings of a Log.
type Config struct {
	Level Level
	// Queue bounds the lines that wait to be written.
	Queue int
	// LoginsRefused and CallsRefused bound the lines a second of what strangers and
	// clients can cause without any right, with ten seconds' worth at once.
	LoginsRefused, CallsRefused float64
}

// Log is where lines go. Its methods may be called by any goroutine. A nil *Log
// writes nothing.
type Log struct {
	level   Level
	handler slog.Handler
	refused [2]*rate.Limiter // of logins, of calls
	queue   chan Entry
	done    chan struct{}

	left    atomic.Uint64 // lines left out that no line has told of yet
	dropped atomic.Uint64
	written atomic.Uint64
	last    tail

	mu     sync.RWMutex // Stop's, against Add
	closed bool
}

// New starts a Log that writes to handler. It is nil for Off. Stop ends it.
func New(handler slog.Handler, cfg Config) (*Log, error) {
	switch {
	case cfg.Level == Off:
		return nil, nil
	case cfg.Queue < 1 || cfg.LoginsRefused <= 0 || cfg.CallsRefused <= 0:
		return nil, errors.New("audit: a queue and rates above 0 are needed")
	}
	burst := func(perSecond float64) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), max(1, int(10*perSecond)))
	}
	l := &Log{
		level: cfg.Level, handler: handler.WithAttrs([]slog.Attr{slog.String("component", "audit")}),
		refused: [2]*rate.Limiter{burst(cfg.LoginsRefused), burst(cfg.CallsRefused)},
		queue:   make(chan Entry, cfg.Queue), done: make(chan struct{}),
	}
	go l.run()
	return l, nil
}

// Wants reports whether lines of a level are written.
func (l *Log) Wants(level Level) bool { return l != nil && level <= l.level }

// Add hands a line over. It does not wait.
func (l *Log) Add(e Entry) { l.add(e, true) }

// Refused hands over a line that a client without any right can cause at will.
func (l *Log) Refused(e Entry) {
	limit := 1
	if e.Event == LoginRefused || e.Event == TicketRefused {
		limit = 0
	}
	l.add(e, l.refused[limit].Allow())
}

func (l *Log) add(e Entry, allowed bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if allowed && !l.closed {
		e.missing = l.left.Swap(0)
		select {
		case l.queue <- e:
			return
		default:
			l.left.Add(e.missing)
		}
	}
	l.left.Add(1)
	l.dropped.Add(1)
}

// Stop writes what waits and ends the Log. What comes afterwards is left out.
func (l *Log) Stop(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d lines of the audit were not written: %w", len(l.queue), context.Cause(ctx))
	}
}

// Written and Dropped are how many lines were written, and left out.
func (l *Log) Written() uint64 { return l.written.Load() }

// Dropped is how many lines were left out.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

func (l *Log) run() {
	defer close(l.done)
	for e := range l.queue {
		l.write(&e)
	}
	if n := l.left.Load(); n > 0 {
		l.write(&Entry{At: time.Now(), Event: "end", missing: n})
	}
}

// write does not ask whether the level of the log is enabled: the audit has its own.
func (l *Log) write(e *Entry) {
	r := slog.NewRecord(e.At, slog.LevelInfo, string(e.Event), 0)
	text := func(key, value string) {
		if value != "" {
			r.AddAttrs(slog.String(key, value))
		}
	}
	text("principal", e.Principal)
	text("credential", e.Credential)
	text("remote", e.Address)
	text("method", e.Method)
	text("signer", e.Signer)
	if e.HasNonce {
		r.AddAttrs(slog.Int64("nonce", e.Nonce))
	}
	if e.Count > 1 {
		r.AddAttrs(slog.Int("count", e.Count))
	}
	text("outcome", e.Outcome)
	text("right", e.Right)
	text("before", e.Before)
	text("after", e.After)
	text("why", e.Why)
	if e.missing > 0 {
		r.AddAttrs(slog.Uint64("missing", e.missing))
	}
	if err := l.handler.Handle(context.Background(), r); err != nil {
		l.dropped.Add(1) // there is nowhere to say it now
		l.left.Add(e.missing + 1)
		return
	}
	l.written.Add(1)
	l.last.add(e)
}
