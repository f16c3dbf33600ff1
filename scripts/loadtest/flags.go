package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
)

// rule is one that a command line may break.
type rule struct {
	broken bool
	text   string // of the error, which names the flag
}

// usage is a *usageError of the first rule that is broken, nil when none is.
func usage(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return &usageError{errors.New(r.text)}
		}
	}
	return nil
}

// wrongRounds is broken by a number of rounds that cannot be.
func wrongRounds(n int) rule { return rule{n < 1 || n > 1000, "--rounds must be 1 to 1000"} }

// groups are the headings of the flags in --help.
var groups = map[string]string{
	"target":   "Target:",
	"load":     "Load:",
	"time":     "Time:",
	"report":   "Report:",
	"criteria": "Criteria (a run that misses one exits with 1):",
}

type targetFlags struct {
	URL []string `name:"url" group:"target" sep:"none" default:"ws://127.0.0.1:8080/ws" help:"Address of a gateway; repeat it for several, which take connections in turn."`
	accessFlags
}

type accessFlags struct {
	Token string `group:"target" env:"NONCEGATE_TOKEN" placeholder:"KEY" help:"API key, or another Bearer token, that connections show. Best given by the environment ($NONCEGATE_TOKEN): a command line is seen by every user of the host."`
	CA    string `name:"ca" group:"target" placeholder:"FILE" help:"Certificates of the authorities that are trusted with wss addresses, in PEM. Default: those of the system."`
}

// access is how connections are let in. An error is a *usageError.
func (f *accessFlags) access() (access.Access, error) {
	a, err := access.New(f.Token, f.CA)
	if err != nil {
		return a, &usageError{fmt.Errorf("--ca: %w", err)}
	}
	return a, nil
}

type signerFlags struct {
	Signers    int   `group:"load" default:"1000" help:"Number of signers; 1 is one hot signer."`
	SignerBase int64 `group:"load" default:"0" help:"Number of the first signer's account."`
}

// loadFlags are a load; its time has defaults of its own for each command.
type loadFlags struct {
	targetFlags
	Connections int         `group:"load" default:"64" help:"Connections that send."`
	Inflight    int         `group:"load" default:"16" help:"Requests of a burst. Closed loop: a connection sends the next burst when all of the last were answered."`
	Rate        float64     `group:"load" default:"0" help:"Requests a second over all connections, latency counted from when each was due (open loop). 0: as fast as answers come (closed loop)."`
	Mix         traffic.Mix `group:"load" default:"allocate=1" help:"Shares of the methods, such as allocate=6,markUsed=3,markRecyclable=1,status=1. pairs in their place: what was allocated is marked used by the same connection before it allocates more."`
	signerFlags
	Zipf        float64 `group:"load" default:"0" help:"Exponent, above 1, by which some signers are chosen more often than others. 0: all the same."`
	Subscribers int     `group:"load" default:"0" help:"Further connections that receive the events of all signers. With them the end-to-end latency is that of the events."`

	RampUp   time.Duration `group:"time" default:"0s" help:"Time over which the connections are opened."`
	Warmup   time.Duration `group:"time" default:"1s" help:"Time before measuring, once all are open."`
	Duration time.Duration `group:"time" default:"5s" help:"Time measured."`
}

// load is the load the flags ask for. An error is a *usageError.
func (f *loadFlags) load() (traffic.Load, error) {
	in, err := f.access()
	l := traffic.Load{
		URLs: f.URL, Access: in, Connections: f.Connections, Inflight: f.Inflight, Rate: f.Rate, Mix: f.Mix,
		Signers:     traffic.Signers{Base: f.SignerBase, Count: f.Signers, Zipf: f.Zipf},
		Subscribers: f.Subscribers, RampUp: f.RampUp, Warmup: f.Warmup, Duration: f.Duration,
	}
	return l, cmp.Or(err, asUsage(l.Validate()))
}

// asUsage makes an error about a field one about its flag.
func asUsage(err error) error {
	_, wrong := errors.AsType[*traffic.FieldError](err)
	_, used := errors.AsType[*verify.UsedError](err)
	if wrong || used {
		return &usageError{err}
	}
	return err
}

type reportFlags struct {
	Metrics  []string `group:"report" sep:"none" placeholder:"URL" help:"Address of a gateway's /metrics, read while the load runs; repeat it for several. Default: http://127.0.0.1:8081/metrics for a gateway at port 8080 of this machine, else none."`
	AdminKey string   `name:"admin-key" group:"report" env:"NONCEGATE_ADMIN_KEY" placeholder:"KEY" help:"What the gateways' /metrics ask for (--admin-key of the gateway). Best given by the environment ($NONCEGATE_ADMIN_KEY)."`
	JSON     string   `name:"json" group:"report" placeholder:"FILE" help:"Write the result as JSON to this file; - for standard output instead of the text."`
	HTML     string   `name:"html" group:"report" placeholder:"FILE" help:"Write the report as one HTML file, which needs no network to be looked at."`
}

// metrics are the addresses to read: those given, or what is likely.
func (f *reportFlags) metrics(targets []string) []string {
	if len(f.Metrics) > 0 {
		return f.Metrics
	}
	for _, target := range targets {
		u, err := url.Parse(target)
		if err == nil && u.Port() == "8080" && loopback(u.Hostname()) {
			return []string{"http://" + net.JoinHostPort(u.Hostname(), "8081") + "/metrics"}
		}
	}
	return nil
}

// pages are the addresses to read, with the key for them. They trust the certificates that
// the connections of the load trust.
func (f *reportFlags) pages(targets []string, in access.Access) observe.Pages {
	p := observe.Pages{URLs: f.metrics(targets), Access: access.Access{TLS: in.TLS}}
	if f.AdminKey != "" {
		p.Access.Header = http.Header{"Authorization": {"Bearer " + f.AdminKey}}
	}
	return p
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (f *reportFlags) validate() error {
	i := slices.IndexFunc(f.Metrics, func(text string) bool {
		u, err := url.Parse(text)
		return err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == ""
	})
	if i >= 0 {
		return &usageError{fmt.Errorf("--metrics must be like http://127.0.0.1:8081/metrics, and %q is not", f.Metrics[i])}
	}
	return usage(rule{f.HTML == "-", "--html must be a file"})
}

type criteriaFlags struct {
	MaxE2EP99       time.Duration `name:"max-e2e-p99" group:"criteria" default:"0s" help:"Most time for 99 % of the requests, from when each was due to its answer, or with --subscribers to its event. 0s: not judged."`
	MaxFailedShare  float64       `group:"criteria" default:"0.05" help:"Largest share, 0 to 1, of requests that were refused, failed or never sent."`
	MinAcknowledged int64         `group:"criteria" default:"1000" help:"Fewest acknowledged requests with which a run says anything."`
	MaxLost         int64         `group:"criteria" default:"0" help:"Most connections that may end by themselves. -1: not judged."`
	GrowthCheck     bool          `group:"criteria" default:"true" negatable:"" help:"No stage of a gateway may grow steadily over the run, which takes the figures of its /metrics."`
}

func (f *criteriaFlags) criteria() report.Criteria {
	return report.Criteria{
		MaxE2EP99: f.MaxE2EP99, MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged,
		MaxLost: f.MaxLost, Growth: f.GrowthCheck,
	}
}

func (f *criteriaFlags) validate() error {
	return usage(
		rule{f.MaxE2EP99 < 0, "--max-e2e-p99 must not be negative"},
		rule{!(f.MaxFailedShare >= 0 && f.MaxFailedShare <= 1), "--max-failed-share must be 0 to 1"},
		rule{f.MinAcknowledged < 1, "--min-acknowledged must be at least 1"},
		rule{f.MaxLost < -1, "--max-lost must be -1 or more"},
	)
}

// AfterApply completes the addresses once kong has read them.
func (f *targetFlags) AfterApply() error {
	for i, text := range f.URL {
		f.URL[i] = withPath(text)
	}
	return nil
}

// withPath gives an address without a path that of a gateway, as package client
// does.
func withPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return address
	}
	u.Path = "/ws"
	return u.String()
}

// advised adds to the error of a load on gateways that somebody else has started
// what is wrong most often.
func advised(err error) error {
	dial, _ := errors.AsType[*client.DialError](err)
	switch {
	case err == nil:
		return nil
	case refused(err):
		return fmt.Errorf("%w; is the gateway running? (make run)", err)
	case dial != nil && dial.Status == http.StatusNotFound,
		strings.Contains(err.Error(), websocket.ErrBadHandshake.Error()+": 404"):
		return fmt.Errorf("%w; a gateway takes WebSockets at /ws", err)
	}
	return err
}

// refused reports whether nobody listens at an address. Windows has an error
// number of its own for it.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "actively refused it")
}
