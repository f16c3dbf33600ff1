// Package traffic makes load for gateways and measures what they answer.
//
// It promises that every request of the measured time is counted once, as acknowledged, refused, failed or unsent; that latency in an open
// loop counts from when a request should have left, so that no stall is hidden; that a connection which is lost costs the run its own
// requests and nothing else; that Run returns once every connection is closed and every goroutine has ended.
//
// It shares the processors with what it measures, so a Load is built to cost little: a burst of requests is composed into one buffer and is
// one system call, and an answer is looked through for the few words of interest without being decoded. Each
// connection has one goroutine that reads; in a closed loop the same one sends, in an open loop one sends for all. What a request met is
// what is counted: only the clients of a Steady reconnect and try again.
//
// Callers see to it that what they ask for makes sense; the command line says which rules there are.
package traffic

import (
	"crypto/tls"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/internal/tlsfiles"
	"noncegate/scripts/loadtest/result"
)

// Load says what to send; its tags are those of the command line. Every connection sends bursts of Inflight requests. In a closed loop,
// which is Rate 0, the next burst leaves when all of the last were answered; in an open one they are due at even times over all
// connections.
type Load struct {
	URLs   []string `name:"url" group:"target" sep:"none" default:"ws://127.0.0.1:8080/ws" help:"${url}"`
	Access Access   `embed:"" group:"target"`

	Connections int     `default:"64" help:"Connections that send."`
	Inflight    int     `default:"16" help:"${inflight}"`
	Rate        float64 `default:"0" help:"${rate}"`
	Mix         Mix     `default:"allocate=1" help:"${mix}"`
	Signers     Signers `embed:""`
	Subscribers int     `default:"0" help:"Further connections that receive the events of all signers. ${subscribers}"`

	RampUp   time.Duration `group:"time" default:"0s" help:"Time over which the connections are opened; then all begin to send."`
	Warmup   time.Duration `group:"time" default:"1s" help:"Time before measuring, once all are open."`
	Duration time.Duration `group:"time" default:"5s" help:"Time measured."`

	// Owned are, for each of URLs, the accounts that its connections ask for, numbers less Signers.Base; nil: any.
	Owned  [][]int64 `kong:"-"`
	Slow   Slow      `kong:"-"` // further clients
	Verify *Recorder `kong:"-"` // is told the calls of the whole run; nil: they are not kept

	// Progress, where it is set, is called after each measured second, from one goroutine, and must not block.
	Progress func(result.Second) `kong:"-"`
	// BeginMeasure and EndMeasure, where they are set, are called when the measured time begins and has ended, if it began.
	BeginMeasure, EndMeasure func() `kong:"-"`

	grace time.Duration // how long answers are waited for at the end; 0: what is usual
}

// The bounds of a load. A burst must fit into the send buffer of its socket, so that to write it never means to wait for the other side.
const (
	MaxConnections = 1_000_000
	MaxInflight    = 1000
	MaxSigners     = 1_000_000_000
)

func (l *Load) describe() result.Load {
	return result.Load{
		Connections: l.Connections, Inflight: l.Inflight, Rate: l.Rate, Mix: l.Mix.shares(),
		Signers: l.Signers.Count, SignerBase: l.Signers.Base, Subscribers: l.Subscribers,
		RampUp: l.RampUp.Seconds(), Warmup: l.Warmup.Seconds(), Duration: l.Duration.Seconds(),
	}
}

// Access is what connections show, and whom they trust: nothing, and the certificates of the system. It does not change once it is used.
type Access struct {
	Token string `env:"NONCEGATE_TOKEN" placeholder:"KEY" help:"API key, or another Bearer token, that connections show. ${secret}"`
	CA    string `name:"ca" placeholder:"FILE" help:"Certificates of the authorities trusted with wss, in PEM. Default: the system's."`

	Header http.Header `kong:"-"` // sent with each upgrade
	TLS    *tls.Config `kong:"-"` // of wss addresses
}

// AfterApply is called by the parser.
func (a *Access) AfterApply() (err error) {
	if a.Token != "" {
		a.Header = http.Header{"Authorization": {"Bearer " + a.Token}}
	}
	if a.CA != "" {
		if a.TLS, err = tlsfiles.Client(a.CA, "", ""); err != nil {
			err = fmt.Errorf("--ca: %w", err)
		}
	}
	return err
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

// Mix is the share of each method, in any unit. Marks are of nonces that the same connection was handed out before; while there is none, an
// allocate is sent in their place. The zero Mix only allocates.
type Mix struct {
	Shares [methodCount]float64
	// Pairs is instead of shares: a connection marks as used everything that it was handed out before it allocates more.
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
		value, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
		if method < 0 || err != nil {
			return fmt.Errorf("%q is not a share of allocate, markUsed, markRecyclable or status, such as allocate=6; "+
				"instead of shares there may be the word pairs", part)
		}
		m.Shares[method] = value
	}
	// Without allocates there would be nothing to mark.
	if !(m.Shares[Allocate] > 0 && slices.Min(m.Shares[:]) >= 0) || math.IsInf(m.sum(), 0) {
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

// pick chooses a method, at random by its share. In pairs it is a mark, in whose place an allocate is sent while there is none.
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

// Signers are Count accounts with numbers from Base on. One of them is a hot signer.
type Signers struct {
	Count int   `name:"signers" default:"1000" help:"Number of signers; 1 is one hot signer."`
	Base  int64 `name:"signer-base" default:"0" help:"Number of the first signer's account."`
}

// Name is the i-th signer on the wire, i from 0.
func (s Signers) Name(i int) string { return Signer(s.Base + int64(i)) }

func (s *Signers) pick(rng *rand.Rand) int64 { return s.Base + rng.Int64N(int64(s.Count)) }

// Signer is the name of an account on the wire; the last 16 digits are the account's number in hexadecimal.
func Signer(account int64) string { return fmt.Sprintf("eip155:1:0x%040x", account) }

// accountOf is the number of an account of these by its name; false: it is none of them.
func (s *Signers) accountOf(signer string) (int64, bool) {
	if len(signer) != len(signerPrefix)+signerDigits || signer[:len(signerPrefix)] != signerPrefix {
		return 0, false
	}
	account, err := strconv.ParseInt(signer[len(signerPrefix):], 16, 64)
	i := account - s.Base
	return account, err == nil && i >= 0 && i < int64(s.Count)
}
