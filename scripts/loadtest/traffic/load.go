// Package traffic makes load for gateways and measures what they answer.
//
// It promises that every request of the measured time is counted once, as
// acknowledged, refused, failed or unsent; that latency in an open loop counts
// from when a request should have left, so that no stall is hidden; that a
// connection which is lost costs the run its own requests and nothing else; that
// Run returns once every connection is closed and every goroutine has ended.
//
// It shares the processors with what it measures, so it is built to cost little:
// a burst of requests is composed into one buffer and is one system call, an answer
// is looked through for the few words of interest without being decoded, and no
// request takes memory.
//
// It does not retry or reconnect: what a request met is what is counted. Answers
// are only judged by a verify.Recorder, when there is one.
//
// Each connection has one goroutine that reads; in a closed loop the same one
// sends. In an open loop a few schedulers, one for each processor, send for all.
package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	// Verify is told the calls of the whole run; nil: nobody is.
	Verify *verify.Recorder

	// Progress is called after each measured second, from one goroutine, and
	// must not block; nil: nobody is told.
	Progress func(result.Second)
	// BeginMeasure and EndMeasure are called when the measured time begins and
	// when it has ended, so that others may measure the same time; both may be
	// nil. EndMeasure is not called without BeginMeasure.
	BeginMeasure, EndMeasure func()

	grace time.Duration // how long answers are waited for at the end; 0: what is usual
}

// The bounds of a load. A burst must fit into the send buffer of its socket, so
// that to write it never means to wait for the other side.
const (
	maxConnections = 1_000_000
	maxInflight    = 1000
	maxSigners     = 1_000_000_000
)

// FieldError says which field of a Load breaks which rule, by the flag of the load test that sets
// it, without its dashes.
type FieldError struct{ Flag, Rule string }

func (e *FieldError) Error() string { return "--" + e.Flag + " " + e.Rule }

// Validate returns a *FieldError for the first field that breaks its rule.
func (l *Load) Validate() error {
	return validate(l.URLs, []rule{
		{"connections", outside(l.Connections, 1, maxConnections), "must be 1 to 1000000"},
		{"inflight", outside(l.Inflight, 1, maxInflight), "must be 1 to 1000"},
		{"rate", !(l.Rate >= 0 && l.Rate <= 1e9), "must be 0 (closed loop) to 1000000000 requests a second"},
		{"ramp-up", l.RampUp < 0, "must not be negative"},
		{"warmup", l.Warmup < 0, "must not be negative"},
		{"duration", l.Duration <= 0, "must be above 0"},
		{"signers", outside(l.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
		{"signers", l.Signers.Accounts != nil && len(l.Signers.Accounts) != l.Signers.Count, "must be as many as their accounts"},
		{"signer-base", l.Signers.Base < 0 || l.Signers.Base > math.MaxInt64-maxSigners, "must be 0 to 9223372035854775807"},
		{"zipf", l.Signers.Zipf != 0 && !(l.Signers.Zipf > 1 && l.Signers.Zipf <= 100), "must be above 1 and at most 100, or 0 for a uniform choice"},
		{"subscribers", outside(l.Subscribers, 0, maxConnections), "must be 0 to 1000000"},
		{"mix", !l.Mix.valid(), "must be pairs, or have shares that are not negative and a share of allocate above 0"},
	})
}

type rule struct {
	field  string
	broken bool
	text   string
}

// validate returns a *FieldError for the first rule that is broken, or for the
// targets.
func validate(urls []string, rules []rule) error {
	if len(urls) == 0 {
		return &FieldError{"url", "must have at least one address"}
	}
	for _, rule := range rules {
		if rule.broken {
			return &FieldError{rule.field, rule.text}
		}
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
			return &FieldError{"url", fmt.Sprintf("must be like ws://127.0.0.1:8080/ws, and %q is not", text)}
		}
	}
	return nil
}

func outside(n, low, high int) bool { return n < low || n > high }

func (l *Load) describe() result.Load {
	return result.Load{
		Connections: l.Connections, Inflight: l.Inflight, Rate: l.Rate, Mix: l.Mix.shares(),
		Signers: l.Signers.Count, SignerBase: l.Signers.Base, Zipf: l.Signers.Zipf, Subscribers: l.Subscribers,
		RampUp: l.RampUp.Seconds(), Warmup: l.Warmup.Seconds(), Duration: l.Duration.Seconds(),
	}
}

// Method is one of the methods that a load is mixed of.
type Method uint8

// The methods of a Mix.
const (
	Allocate Method = iota
	MarkUsed
	MarkRecyclable
	Status
	methodCount
)

var methodNames = [methodCount]string{"allocate", "markUsed", "markRecyclable", "status"}

// String is the method's word in a mix and in results.
func (m Method) String() string { return methodNames[m] }

// Mix is the share of each method, in any unit. Marks are of nonces that the
// same connection was handed out before; while there is none to mark, an
// allocate is sent in its place, so that the shares of a run may differ. The zero
// Mix only allocates.
type Mix struct {
	Shares [methodCount]float64
	// Pairs is instead of shares: a connection marks as used everything that it was
	// handed out before it allocates more. In a closed loop each burst of allocations is
	// followed by the burst of their marks; nothing is marked for an allocation that
	// failed.
	Pairs bool
}

// UnmarshalText reads a mix such as "allocate=6,markUsed=3,markRecyclable=1", or "pairs".
func (m *Mix) UnmarshalText(text []byte) error {
	*m = Mix{Pairs: string(text) == "pairs"}
	if m.Pairs {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		name, share, _ := strings.Cut(part, "=")
		method := slices.Index(methodNames[:], strings.TrimSpace(name))
		if method < 0 {
			return fmt.Errorf("%q is not a share of allocate, markUsed, markRecyclable or status, such as allocate=6; instead of shares there may be the word pairs", part)
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if err != nil {
			return fmt.Errorf("the share in %q is not a number", part)
		}
		m.Shares[method] = value
	}
	if m.sum() == 0 || !m.valid() {
		return fmt.Errorf("%q must have shares that are not negative and a share of allocate above 0", text)
	}
	return nil
}

func (m *Mix) sum() (sum float64) {
	for _, share := range m.Shares {
		sum += share
	}
	return sum
}

// valid reports whether a load can be made of it. Without allocates there would
// be nothing to mark.
func (m *Mix) valid() bool {
	if m.Shares == [methodCount]float64{} {
		return true
	}
	return !m.Pairs && m.Shares[Allocate] > 0 && slices.Min(m.Shares[:]) >= 0 && !math.IsInf(m.sum(), 0)
}

func (m *Mix) allocatesOnly() bool { return !m.Pairs && m.sum() == m.Shares[Allocate] }

// shares is the mix as results show it, in parts of one.
func (m *Mix) shares() map[string]float64 {
	switch {
	case m.Pairs:
		return map[string]float64{Allocate.String(): 0.5, MarkUsed.String(): 0.5}
	case m.allocatesOnly():
		return map[string]float64{Allocate.String(): 1}
	}
	shares := make(map[string]float64)
	for method, part := range m.Shares {
		if part > 0 {
			shares[Method(method).String()] = part / m.sum()
		}
	}
	return shares
}

// pick chooses a method, at random by its share. In pairs it is a mark, in whose place an
// allocate is sent while there is none.
func (m *Mix) pick(rng *rand.Rand) Method {
	if m.Pairs {
		return MarkUsed
	}
	at := rng.Float64() * m.sum()
	for method, share := range m.Shares {
		if at -= share; at < 0 {
			return Method(method)
		}
	}
	return Allocate
}

// Signers are Count accounts with numbers from Base on; see verify.Signer for
// their names. One of them is a hot signer.
type Signers struct {
	Base  int64
	Count int
	// Accounts are their numbers less Base, ascending, as many as Count; nil: 0 to
	// Count-1.
	Accounts []int64
	// Zipf, above 1, gives the k-th account a chance that falls with k to that
	// power; 0 gives all the same.
	Zipf float64
}

// Name is the i-th signer on the wire, i from 0.
func (s Signers) Name(i int) string { return verify.Signer(s.number(int64(i))) }

func (s *Signers) number(i int64) int64 {
	if s.Accounts != nil {
		i = s.Accounts[i]
	}
	return s.Base + i
}

func (s Signers) has(account int64) bool {
	if s.Accounts != nil {
		_, found := slices.BinarySearch(s.Accounts, account-s.Base)
		return found
	}
	return account >= s.Base && account-s.Base < int64(s.Count)
}

// chooser picks accounts at random. It belongs to one connection.
type chooser struct {
	Signers
	rng  *rand.Rand
	zipf *rand.Zipf // nil: uniform
}

func newChooser(s Signers, rng *rand.Rand) chooser {
	c := chooser{Signers: s, rng: rng}
	if s.Zipf != 0 {
		c.zipf = rand.NewZipf(rng, s.Zipf, 1, uint64(s.Count-1))
	}
	return c
}

func (c *chooser) next() int64 {
	if c.zipf != nil {
		return c.number(int64(c.zipf.Uint64()))
	}
	return c.number(c.rng.Int64N(int64(c.Count)))
}
