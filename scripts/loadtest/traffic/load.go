package traffic

import (
	"fmt"
	"math"
	"net/url"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/verify"
)

// Load says what to send. Every connection sends bursts of Inflight requests,
// each burst in one write. In a closed loop, which is Rate 0, the next burst
// leaves when all of the last were answered. In an open one bursts are due at
// even times, spread over all connections, whatever was answered.
type Load struct {
	// URLs are the targets, such as "ws://127.0.0.1:8080/ws". Connections take
	// them in turn.
	URLs []string
	// Access is how connections are let in.
	Access access.Access
	// Connections is how many connections send, 1 to 1,000,000.
	Connections int
	// Inflight is how many requests a burst has, 1 to 1,000.
	Inflight int
	// Rate is how many requests a second become due over all connections; 0 is a
	// closed loop.
	Rate float64

	// RampUp is the time over which connections are opened, each of which sends
	// from then on. 0: all are opened as fast as may be and then begin together.
	RampUp time.Duration
	// Warmup passes after the last connection was opened and before measuring.
	Warmup time.Duration
	// Duration is the measured time, above 0.
	Duration time.Duration

	// Mix is the share of each method; the zero Mix only allocates.
	Mix Mix
	// Signers are the accounts that requests are about.
	Signers Signers
	// Subscribers is how many further connections subscribe to all events, each
	// of which measures when they arrive.
	Subscribers int
	// Verify is told every answer of the whole run; nil: nobody is.
	Verify *verify.Recorder

	// Progress is called after each measured second, from one goroutine, and
	// must not block; nil: nobody is told.
	Progress func(result.Second)
	// BeginMeasure and EndMeasure are called when the measured time begins and
	// when it has ended, so that others may measure the same time; both may be
	// nil. EndMeasure is not called without BeginMeasure.
	BeginMeasure, EndMeasure func()

	grace time.Duration // how long answers are waited for at the end; 0: drainGrace
}

// The bounds of a load. A burst must fit into the send buffer of its socket, so
// that to write it never means to wait for the other side.
const (
	maxConnections = 1_000_000
	maxInflight    = 1000
	maxSigners     = 1_000_000_000
)

// FieldError says which field of a Load breaks which rule.
type FieldError struct {
	Field string // its name in Load, or in Signers
	Rule  string // such as "must be at least 1"
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Rule }

// Validate returns a *FieldError for the first field that breaks its rule.
func (l *Load) Validate() error {
	return validate(l.URLs, []rule{
		{"Connections", outside(l.Connections, 1, maxConnections), "must be 1 to 1000000"},
		{"Inflight", outside(l.Inflight, 1, maxInflight), "must be 1 to 1000"},
		{"Rate", !(l.Rate >= 0 && l.Rate <= 1e9), "must be 0 (closed loop) to 1000000000 requests a second"},
		{"RampUp", l.RampUp < 0, "must not be negative"},
		{"Warmup", l.Warmup < 0, "must not be negative"},
		{"Duration", l.Duration <= 0, "must be above 0"},
		{"Signers", outside(l.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
		{"Signers", l.Signers.Accounts != nil && len(l.Signers.Accounts) != l.Signers.Count, "must be as many as their accounts"},
		{"SignerBase", l.Signers.Base < 0 || l.Signers.Base > math.MaxInt64-maxSigners, "must be 0 to 9223372035854775807"},
		{"Zipf", l.Signers.Zipf != 0 && !(l.Signers.Zipf > 1 && l.Signers.Zipf <= 100), "must be above 1 and at most 100, or 0 for a uniform choice"},
		{"Subscribers", outside(l.Subscribers, 0, maxConnections), "must be 0 to 1000000"},
		{"Mix", !l.Mix.valid(), "must be pairs, or have shares that are not negative and a share of allocate above 0"},
	})
}

// rule is one of a field.
type rule struct {
	field  string
	broken bool
	text   string
}

// validate returns a *FieldError for the first rule that is broken, or for the
// targets.
func validate(urls []string, rules []rule) error {
	if len(urls) == 0 {
		return &FieldError{"URLs", "must have at least one address"}
	}
	for _, rule := range rules {
		if rule.broken {
			return &FieldError{rule.field, rule.text}
		}
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
			return &FieldError{"URLs", fmt.Sprintf("must be like ws://127.0.0.1:8080/ws, and %q is not", text)}
		}
	}
	return nil
}

func outside(n, low, high int) bool { return n < low || n > high }

// describe is the load as results repeat it.
func (l *Load) describe() result.Load {
	return result.Load{
		Connections: l.Connections, Inflight: l.Inflight, Rate: l.Rate, Mix: l.Mix.shares(),
		Signers: l.Signers.Count, SignerBase: l.Signers.Base, Distribution: l.Signers.String(),
		Subscribers: l.Subscribers,
		RampUp:      l.RampUp.Seconds(), Warmup: l.Warmup.Seconds(), Duration: l.Duration.Seconds(),
	}
}
