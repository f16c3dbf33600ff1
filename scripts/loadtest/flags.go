package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/traffic"
)

// rule is one that a command line may break.
type rule struct {
	broken bool
	text   string // of the error, which names the flag
}

// usage is a usageError of the first rule that is broken, nil when none is.
func usage(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return usageError{errors.New(r.text)}
		}
	}
	return nil
}

// between breaks a rule with a flag that is not low to high.
func between[T cmp.Ordered](flag string, value, low, high T) rule {
	return rule{!(value >= low && value <= high), fmt.Sprintf("--%s must be %v to %v", flag, low, high)}
}

func connectionsRule(n int) rule { return between("connections", n, 1, traffic.MaxConnections) }
func roundsRule(n int) rule      { return between("rounds", n, 1, 1000) }

// addresses breaks a rule with one that is not like another one.
func addresses(flag, like string, texts ...string) rule {
	want, _ := url.Parse(like)
	i := slices.IndexFunc(texts, func(text string) bool {
		u, err := url.Parse(text)
		return err != nil || u.Scheme != want.Scheme && u.Scheme != want.Scheme+"s" || u.Host == ""
	})
	if i < 0 {
		return rule{}
	}
	return rule{true, fmt.Sprintf("--%s must be like %s, and %q is not", flag, like, texts[i])}
}

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

// access is how connections are let in. An error is a usageError.
func (f *accessFlags) access() (traffic.Access, error) {
	a, err := traffic.NewAccess(f.Token, f.CA)
	if err != nil {
		return a, usageError{fmt.Errorf("--ca: %w", err)}
	}
	return a, nil
}

type signerFlags struct {
	Signers    int   `group:"load" default:"1000" help:"Number of signers; 1 is one hot signer."`
	SignerBase int64 `group:"load" default:"0" help:"Number of the first signer's account."`
}

func (f *signerFlags) signers() traffic.Signers {
	return traffic.Signers{Base: f.SignerBase, Count: f.Signers}
}

func (f *signerFlags) validate() error {
	base := between("signer-base", f.SignerBase, 0, math.MaxInt64-traffic.MaxSigners)
	return usage(between("signers", f.Signers, 1, traffic.MaxSigners), base)
}

// loadFlags are a load; its time has defaults of its own for each command.
type loadFlags struct {
	targetFlags
	Connections int         `group:"load" default:"64" help:"Connections that send."`
	Inflight    int         `group:"load" default:"16" help:"Requests of a burst. Closed loop: a connection sends the next burst when all of the last were answered."`
	Rate        float64     `group:"load" default:"0" help:"Requests a second over all connections, latency counted from when each was due (open loop). 0: as fast as answers come (closed loop)."`
	Mix         traffic.Mix `group:"load" default:"allocate=1" help:"Shares of the methods, such as allocate=6,markUsed=3,markRecyclable=1,status=1. pairs in their place: what was allocated is marked used by the same connection before it allocates more."`
	signerFlags
	Subscribers int `group:"load" default:"0" help:"Further connections that receive the events of all signers. With them the end-to-end latency is that of the events."`

	RampUp   time.Duration `group:"time" default:"0s" help:"Time over which the connections are opened; then all begin to send."`
	Warmup   time.Duration `group:"time" default:"1s" help:"Time before measuring, once all are open."`
	Duration time.Duration `group:"time" default:"5s" help:"Time measured."`
}

// maxRampUp is shorter than a gateway waits for the answer to its ping.
const maxRampUp = time.Minute

// load is the load the flags ask for. An error is a usageError.
func (f *loadFlags) load() (traffic.Load, error) {
	in, err := f.access()
	return traffic.Load{
			URLs: f.URL, Access: in, Connections: f.Connections, Inflight: f.Inflight, Rate: f.Rate, Mix: f.Mix, Signers: f.signers(),
			Subscribers: f.Subscribers, RampUp: f.RampUp, Warmup: f.Warmup, Duration: f.Duration,
		}, cmp.Or(err, f.signerFlags.validate(), usage(
			addresses("url", "ws://127.0.0.1:8080/ws", f.URL...),
			connectionsRule(f.Connections),
			between("inflight", f.Inflight, 1, traffic.MaxInflight),
			between("rate", f.Rate, 0, 1e9),
			between("subscribers", f.Subscribers, 0, traffic.MaxConnections),
			between("ramp-up", f.RampUp, 0, maxRampUp),
			rule{f.Warmup < 0, "--warmup must not be negative"},
			rule{f.Duration <= 0, "--duration must be above 0"},
		))
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
		if err == nil && u.Port() == "8080" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()) {
			return []string{"http://" + net.JoinHostPort(u.Hostname(), "8081") + "/metrics"}
		}
	}
	return nil
}

// pages are the addresses to read, with the key for them. They trust the certificates that the connections of the load trust.
func (f *reportFlags) pages(targets []string, in traffic.Access) observe.Pages {
	p := observe.Pages{URLs: f.metrics(targets), TLS: in.TLS}
	if f.AdminKey != "" {
		p.Header = http.Header{"Authorization": {"Bearer " + f.AdminKey}}
	}
	return p
}

func (f *reportFlags) validate() error {
	return usage(addresses("metrics", "http://127.0.0.1:8081/metrics", f.Metrics...), rule{f.HTML == "-", "--html must be a file"})
}

// failedFlags are the criteria that make sense for every command.
type failedFlags struct {
	MaxFailedShare  float64 `group:"criteria" default:"0.05" help:"Largest share, 0 to 1, of requests that were refused, failed or never sent."`
	MinAcknowledged int64   `group:"criteria" default:"1000" help:"Fewest acknowledged requests with which a run says anything."`
}

// lostFlags are the criteria of single runs of a drill. Growth is not among them: in a drill a queue may grow, for that is what is tried.
type lostFlags struct {
	failedFlags
	MaxLost int64 `group:"criteria" default:"0" help:"Most connections of well-behaved clients that may end by themselves. -1: not judged."`
}

// criteria are those of a run. An error is a usageError.
func (f *lostFlags) criteria() (report.Criteria, error) {
	return report.Criteria{MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged, MaxLost: f.MaxLost}, usage(
		between("max-failed-share", f.MaxFailedShare, 0, 1),
		rule{f.MinAcknowledged < 1, "--min-acknowledged must be at least 1"},
		rule{f.MaxLost < -1, "--max-lost must be -1 or more"},
	)
}
