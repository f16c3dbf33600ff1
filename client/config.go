package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Config holds the settings of a Client. The zero value of each field means its
// default.
type Config struct {
	// URLs are further addresses of the same gateway or cluster. When a
	// connection is lost or refused, the next one is tried in turn.
	URLs []string
	// Header is sent with each upgrade, for authorization, also to OwnerConnections.
	// A user in a URL, as in wss://any:KEY@host, is the same as an Authorization in it.
	Header http.Header
	TLS    *tls.Config // for wss
	// NetDial opens the connections beneath, instead of a net.Dialer.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger is told of connections lost and opened, and on level debug of each
	// try that is not the last. Default: silent.
	Logger *slog.Logger

	// DialTimeout bounds one attempt to connect, upgrade included. Default 10 s.
	DialTimeout time.Duration
	// ReadTimeout is how long a connection may be silent before it counts as
	// dead. It must exceed the gateway's ping interval (30 s) with room for a
	// lost one. Default 75 s; negative: for ever.
	ReadTimeout time.Duration
	// WriteTimeout bounds one write to the network. Default 10 s.
	WriteTimeout time.Duration

	// MaxInflight is how many calls of a connection may wait for an answer.
	// Default 256; the gateway refuses more than that with server_busy.
	MaxInflight int
	// QueueLimit is how many calls beyond MaxInflight may wait for their turn.
	// The next one is ErrQueueFull. Default 1024.
	QueueLimit int
	// MaxMessageBytes bounds a request. Default 64 KiB, which is the gateway's:
	// a larger one would cost all calls their connection.
	MaxMessageBytes int

	// MaxElapsed bounds a call with all its tries and pauses, beside its
	// context. Default 30 s; negative: only the context does.
	MaxElapsed time.Duration
	// A pause between two attempts to connect is drawn from between 0 and a bound,
	// which is BackoffMin at first and doubles each time up to BackoffMax.
	// Defaults 100 ms and 10 s.
	BackoffMin, BackoffMax time.Duration
	// RetryMax is the longest pause between two tries of a call, whose bound begins
	// with BackoffMin and grows likewise. A shorter one finds sooner that a
	// signer whose node died is served again, and costs more refusals till then.
	// Default 1 s, or the nearest that is not outside BackoffMin and BackoffMax.
	RetryMax time.Duration

	// MarkTimeout bounds the mark with which WithNonce ends. It does not depend
	// on the caller's context. Default 10 s.
	MarkTimeout time.Duration
	// NoRequestIDs leaves an allocation without request id when the caller gave
	// none: one write less in the store, but an allocation whose connection is
	// lost is unknown and is not repeated.
	NoRequestIDs bool
	// OwnerConnections is how many gateways beyond the one dialled may be
	// connected to because not_owner, or unavailable, named them. A wss client follows to wss
	// only. Default 8; negative: never.
	OwnerConnections int
	// EventBuffer is how many events a subscription keeps for a consumer that
	// lags behind. More are dropped and counted in Event.Missed. Default 256.
	EventBuffer int
}

// complete fills in the defaults and checks what is left.
func (cfg Config) complete(first string) (Config, error) {
	cfg.URLs = append([]string{first}, cfg.URLs...)
	if err := cfg.addresses(); err != nil {
		return cfg, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.NetDial == nil {
		cfg.NetDial = new(net.Dialer).DialContext
	}
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, 10*time.Second)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 75*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	cfg.MaxInflight = cmp.Or(cfg.MaxInflight, 256)
	cfg.QueueLimit = cmp.Or(cfg.QueueLimit, 1024)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, 64<<10)
	cfg.MaxElapsed = cmp.Or(cfg.MaxElapsed, 30*time.Second)
	cfg.BackoffMin = cmp.Or(cfg.BackoffMin, 100*time.Millisecond)
	cfg.BackoffMax = cmp.Or(cfg.BackoffMax, 10*time.Second)
	cfg.RetryMax = cmp.Or(cfg.RetryMax, min(max(time.Second, cfg.BackoffMin), cfg.BackoffMax))
	cfg.MarkTimeout = cmp.Or(cfg.MarkTimeout, 10*time.Second)
	cfg.OwnerConnections = cmp.Or(cfg.OwnerConnections, 8)
	cfg.EventBuffer = cmp.Or(cfg.EventBuffer, 256)
	return cfg, cfg.validate()
}

func (cfg *Config) validate() error {
	for name, value := range map[string]int64{
		"DialTimeout": int64(cfg.DialTimeout), "WriteTimeout": int64(cfg.WriteTimeout), "BackoffMin": int64(cfg.BackoffMin),
		"MarkTimeout": int64(cfg.MarkTimeout), "MaxInflight": int64(cfg.MaxInflight), "QueueLimit": int64(cfg.QueueLimit),
		"MaxMessageBytes": int64(cfg.MaxMessageBytes), "EventBuffer": int64(cfg.EventBuffer),
	} {
		if value <= 0 {
			return fmt.Errorf("client: Config.%s must be positive", name)
		}
	}
	if cfg.BackoffMax < cfg.BackoffMin {
		return fmt.Errorf("client: Config.BackoffMax (%v) is below BackoffMin (%v)", cfg.BackoffMax, cfg.BackoffMin)
	}
	if cfg.RetryMax < cfg.BackoffMin {
		return fmt.Errorf("client: Config.RetryMax (%v) is below BackoffMin (%v)", cfg.RetryMax, cfg.BackoffMin)
	}
	return nil
}
