// Package ticket authenticates browsers, which cannot set a header when they open a
// WebSocket: a client exchanges its credential for a ticket, and puts that into the URL.
//
// A ticket is 256 random bits, valid once and for half a minute, so that one that is
// found in a log or a history is worthless. The store keeps it as a SHA-256, so it can
// be redeemed at any node, by the store's clock. It belongs to the principal that asked
// for it, and its session ends when that principal's credential ends.
//
// An Issuer owns one goroutine, which deletes unredeemed tickets. Stop ends it and
// waits for it.
package ticket

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Prefix begins every ticket.
const Prefix = "nct_"

const (
	secretBytes = 32
	textLen     = len(Prefix) + 2*secretBytes
	// storeTime bounds how long the store is waited for.
	storeTime = 5 * time.Second
)

// Errors of a ticket, and of issuing one.
var (
	ErrFormat = errors.New("this is not a ticket")
	// ErrUnknown: it was redeemed, its time is over, or it never was.
	ErrUnknown     = errors.New("there is no such ticket, or no more")
	ErrUnavailable = errors.New("tickets cannot be issued or redeemed now")
	// ErrTooMany refuses a ticket to a principal that has left many unused.
	ErrTooMany = errors.New("the principal has too many unused tickets")
)

// Hash is the SHA-256 of a ticket's text.
type Hash [sha256.Size]byte

// Grant is what a ticket stands for.
type Grant struct {
	Principal  string
	Credential string    // that asked for it
	Ends       time.Time // when that credential ends by itself; zero: never
}

// Store keeps tickets. Its implementations are the stores of nonces.
type Store interface {
	// PutTicket keeps a ticket for ttl, and returns until when that is. It fails with
	// ErrTooMany when the principal has maxTickets already. Some more may be there when
	// several are put at the same time.
	PutTicket(ctx context.Context, h Hash, g Grant, ttl time.Duration, maxTickets int) (time.Time, error)
	// TakeTicket deletes a ticket and returns what it stood for, to one caller only.
	// It fails with ErrUnknown.
	TakeTicket(ctx context.Context, h Hash) (Grant, error)
	// PruneTickets deletes tickets whose time is over.
	PruneTickets(ctx context.Context) error
}

// Config are the settings of an Issuer.
type Config struct {
	// TTL is how long a ticket is good. 0: 30s.
	TTL time.Duration
	// PerPrincipal is how many unused tickets a principal may have. 0: 100.
	PerPrincipal int
	// MaxConcurrent is how many tickets a node issues or redeems at a time, each with a write of
	// the store: clients that try made-up ones cannot take all of the store's connections
	// from those at work. 0: 8.
	MaxConcurrent int
	// Waiting is how many more wait for that, as when all pages come back after a
	// restart. Beyond it they are refused as ErrUnavailable, and so is one that waits for five
	// seconds. 0: 1000.
	Waiting int
	// Log is told when tickets cannot be deleted. It may be nil.
	Log *slog.Logger
}

// Issuer issues and redeems tickets. Its methods may be called by any goroutine.
type Issuer struct {
	store   Store
	cfg     Config
	slots   chan struct{} // taken by callers that ask or wait for it
	running chan struct{} // taken by callers that ask
	stop    context.CancelFunc
	done    chan struct{} // closed when the goroutine has ended
}

// Open starts an Issuer. It outlives ctx: Stop ends it.
func Open(ctx context.Context, store Store, cfg Config) (*Issuer, error) {
	cfg.TTL, cfg.PerPrincipal, cfg.MaxConcurrent = cmp.Or(cfg.TTL, 30*time.Second), cmp.Or(cfg.PerPrincipal, 100), cmp.Or(cfg.MaxConcurrent, 8)
	cfg.Waiting = cmp.Or(cfg.Waiting, 1000)
	if cfg.TTL < time.Second || cfg.TTL > 10*time.Minute || cfg.PerPrincipal < 1 || cfg.MaxConcurrent < 1 || cfg.Waiting < 1 {
		return nil, fmt.Errorf("tickets for %v, %d to a principal, %d at a time, %d waiting: 1s to 10m, and at least 1, 1 and 1 are needed",
			cfg.TTL, cfg.PerPrincipal, cfg.MaxConcurrent, cfg.Waiting)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	o := &Issuer{
		store: store, cfg: cfg, done: make(chan struct{}),
		slots: make(chan struct{}, cfg.MaxConcurrent+cfg.Waiting), running: make(chan struct{}, cfg.MaxConcurrent),
	}
	ctx, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	go o.prune(ctx)
	return o, nil
}

// Stop ends the goroutine of the Issuer and waits for it. It may be called more than
// once.
func (o *Issuer) Stop() {
	o.stop()
	<-o.done
}

// Issue makes a ticket. expires is by the store's clock.
func (o *Issuer) Issue(ctx context.Context, g Grant) (text string, expires time.Time, err error) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // it ends the process rather than to fail
	text = Prefix + hex.EncodeToString(b[:])
	err = o.ask(ctx, func(ctx context.Context) (err error) {
		expires, err = o.store.PutTicket(ctx, sha256.Sum256([]byte(text)), g, o.cfg.TTL, o.cfg.PerPrincipal)
		return err
	})
	if err != nil {
		return "", time.Time{}, err
	}
	return text, expires, nil
}

// Redeem returns what a ticket stands for, once. After ErrUnavailable the ticket may
// have been used up; another is needed then.
func (o *Issuer) Redeem(ctx context.Context, text string) (g Grant, err error) {
	h, err := Parse(text)
	if err != nil {
		return Grant{}, err
	}
	err = o.ask(ctx, func(ctx context.Context) (err error) {
		g, err = o.store.TakeTicket(ctx, h)
		return err
	})
	return g, err
}

// Parse returns the hash of a ticket. It fails with ErrFormat, whatever is wrong.
func Parse(text string) (Hash, error) {
	if len(text) != textLen || !strings.HasPrefix(text, Prefix) || strings.Trim(text[len(Prefix):], "0123456789abcdef") != "" {
		return Hash{}, ErrFormat
	}
	return sha256.Sum256([]byte(text)), nil
}

// ask asks the store something, when there is a slot for it. What is not an error of
// this package is ErrUnavailable.
func (o *Issuer) ask(ctx context.Context, fn func(context.Context) error) error {
	select {
	case o.slots <- struct{}{}:
		defer func() { <-o.slots }()
	default:
		return fmt.Errorf("%w: %d others are being asked for", ErrUnavailable, cap(o.slots))
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	select {
	case o.running <- struct{}{}:
		defer func() { <-o.running }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	err := fn(ctx)
	if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrTooMany) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// prune deletes tickets that were not redeemed, once in the time that tickets are valid for.
func (o *Issuer) prune(ctx context.Context) {
	defer close(o.done)
	tick := time.NewTicker(o.cfg.TTL)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := o.pruneOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			o.cfg.Log.Warn("tickets that nobody redeemed cannot be deleted", "error", err)
		}
		failing = err != nil
	}
}

func (o *Issuer) pruneOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return o.store.PruneTickets(ctx)
}
