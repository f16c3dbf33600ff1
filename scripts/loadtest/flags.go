package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
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

// first is the error of the first rule that is broken, nil when none is.
func first(rules ...rule) error {
	for _, r := range rules {
		if r.broken {
			return errors.New(r.text)
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
func subscribersRule(n int) rule { return between("subscribers", n, 0, traffic.MaxConnections) }

func signersRule(s traffic.Signers) rule {
	if base := between("signer-base", s.Base, 0, math.MaxInt64-traffic.MaxSigners); base.broken {
		return base
	}
	return between("signers", s.Count, 1, traffic.MaxSigners)
}

// addresses breaks a rule with one that is not like another one.
func addresses(flag, like string, texts ...string) rule {
	want, _ := url.Parse(like)
	for _, text := range texts {
		if u, err := url.Parse(text); err != nil || u.Scheme != want.Scheme && u.Scheme != want.Scheme+"s" || u.Host == "" {
			return rule{true, fmt.Sprintf("--%s must be like %s, and %q is not", flag, like, text)}
		}
	}
	return rule{}
}

func targetsRule(urls []string) rule { return addresses("url", "ws://127.0.0.1:8080/ws", urls...) }

// groups are the headings of the flags in --help.
var groups = map[string]string{
	"target":   "Target:",
	"load":     "Load:",
	"time":     "Time:",
	"report":   "Report:",
	"criteria": "Criteria (a run that misses one exits with 1):",
}

// LoadFlags are a load. The parser looks at exported fields only where it validates, so it and what it is embedded beside are exported.
type LoadFlags struct{ traffic.Load }

// maxRampUp is shorter than a gateway waits for the answer to its ping.
const maxRampUp = time.Minute

// Validate is called by the parser, as that of the other flags.
func (f *LoadFlags) Validate() error {
	return first(
		targetsRule(f.URLs),
		connectionsRule(f.Connections),
		between("inflight", f.Inflight, 1, traffic.MaxInflight),
		between("rate", f.Rate, 0, 1e9),
		signersRule(f.Signers),
		subscribersRule(f.Subscribers),
		between("ramp-up", f.RampUp, 0, maxRampUp),
		rule{f.Warmup < 0, "--warmup must not be negative"},
		rule{f.Duration <= 0, "--duration must be above 0"},
	)
}

// ReportFlags say what else is looked at, and where it is written.
type ReportFlags struct {
	Metrics  []string `sep:"none" placeholder:"URL" help:"Address of a gateway's /metrics, read meanwhile; repeat it for several. ${metrics}"`
	AdminKey string   `env:"NONCEGATE_ADMIN_KEY" placeholder:"KEY" help:"What the /metrics ask for (--admin-key of the gateway). ${secret}"`
	JSON     string   `name:"json" placeholder:"FILE" help:"Write the result as JSON; - for standard output instead of the text."`
	HTML     string   `name:"html" placeholder:"FILE" help:"Write the report as one HTML file, which needs no network to be looked at."`
}

// texts are parts of the help.
var texts = map[string]string{
	"url":         "Address of a gateway; repeat it for several, which take connections in turn.",
	"inflight":    "Requests of a burst. Closed loop: a connection sends the next burst when all of the last were answered.",
	"rate":        "Requests a second over all connections, latency counted from when each was due (open loop). 0: closed loop.",
	"mix":         "Shares of the methods, such as allocate=6,markUsed=3,markRecyclable=1,status=1, or pairs: each allocation is marked used.",
	"subscribers": "With them the end-to-end latency is that of the events.",
	"verify":      "Check answers about some signers, which must be unused (--signer-base), and what the gateway says of them in the end.",
	"max_e2e":     "Most time for 99 % of requests, from when each was due to its answer, with --subscribers to its event. 0s: not judged.",
	"growth":      "No stage of a gateway may grow steadily over the run, which takes the figures of its /metrics.",
	"metrics":     "Default: http://127.0.0.1:8081/metrics for a gateway at port 8080 of this machine, else none.",
	"off":         "0: not judged.",
	"secret":      "Best given by the environment: a command line is seen by every user of the host.",
	"fresh":       "each time on signers that nobody had before",
	"median":      "the median of the rounds",
	"behaviour":   "What they do once the measured time begins, subscribed and sending: stop (reading) or trickle (a few bytes a second).",
	"slow_rate":   "Requests a second over all clients. The share of the slow ones is sent only when they misbehave.",
	"witnesses":   "Further healthy connections that receive the events of all signers, and must not miss any for the slow ones.",
	"slow_ratio":  "Largest ratio of the healthy clients' p99 with slow ones over that without, the median of the rounds.",
	"gateway":     "Address of a gateway and the command that serves it; repeat it for several.",
	"ready":       "Address that answers 200 once a gateway is ready, one for each --gateway. Default: when a WebSocket handshake succeeds.",
	"submissions": "Submissions a second over all clients, each an allocation and its mark, latency counted from when each was due.",
	"command":     `Its words are separated by spaces, or stand between two ' or two ". No shell runs it, so it must be the gateway itself.`,
}

// Validate is called by the parser.
func (f *ReportFlags) Validate() error {
	return first(addresses("metrics", "http://127.0.0.1:8081/metrics", f.Metrics...), rule{f.HTML == "-", "--html must be a file"})
}

// pages are the addresses to read, those given or what is likely. They trust the certificates that connections trust.
func (f *ReportFlags) pages(targets []string, in traffic.Access) observe.Pages {
	p := observe.Pages{URLs: f.Metrics, TLS: in.TLS}
	for _, target := range targets {
		u, err := url.Parse(target)
		local := err == nil && u.Port() == "8080" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
		if len(p.URLs) == 0 && local {
			p.URLs = []string{"http://" + net.JoinHostPort(u.Hostname(), "8081") + "/metrics"}
		}
	}
	if f.AdminKey != "" {
		p.Header = http.Header{"Authorization": {"Bearer " + f.AdminKey}}
	}
	return p
}

// FailedFlags are the criteria that make sense for every command.
type FailedFlags struct {
	MaxFailedShare  float64 `default:"0.05" help:"Largest share, 0 to 1, of requests that were refused, failed or never sent."`
	MinAcknowledged int64   `default:"1000" help:"Fewest acknowledged requests with which a run says anything."`
}

// Validate is called by the parser.
func (f *FailedFlags) Validate() error {
	return first(
		between("max-failed-share", f.MaxFailedShare, 0, 1),
		rule{f.MinAcknowledged < 1, "--min-acknowledged must be at least 1"},
	)
}

// LostFlags are the criteria of single runs of a drill. Growth is not among them: in a drill a queue may grow, for that is what is tried.
type LostFlags struct {
	FailedFlags
	MaxLost int64 `default:"0" help:"Most connections of well-behaved clients that may end by themselves. -1: not judged."`
}

// Validate is called by the parser.
func (f *LostFlags) Validate() error {
	return first(rule{f.MaxLost < -1, "--max-lost must be -1 or more"})
}

func (f *LostFlags) criteria() report.Criteria {
	return report.Criteria{MaxFailedShare: f.MaxFailedShare, MinAcknowledged: f.MinAcknowledged, MaxLost: f.MaxLost}
}
