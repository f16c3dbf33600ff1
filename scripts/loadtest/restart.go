package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
	"noncegate/scripts/loadtest/wait"
)

// restartCmd restarts gateways one after the other under a load of clients that
// reconnect and retry by request id.
type restartCmd struct {
	Gateway []string `group:"target" required:"" sep:"none" placeholder:"URL=COMMAND" help:"Address of a gateway and the command that serves it; repeat it for several. ${command_rule}"`
	Ready   []string `group:"target" sep:"none" placeholder:"URL" help:"Address that answers 200 once a gateway is ready, such as http://127.0.0.1:8081/readyz; one for each --gateway, in the same order. Default: a gateway is ready when a WebSocket handshake succeeds."`
	accessFlags
	Connections int     `group:"load" default:"100" help:"Clients."`
	Rate        float64 `group:"load" default:"200" help:"Submissions a second over all clients, each an allocation and its mark, latency counted from when each was due."`
	signerFlags
	Before time.Duration `group:"time" default:"10s" help:"Time under load before the first restart, to compare with."`
	After  time.Duration `group:"time" default:"10s" help:"Time under load after each restart."`
	Rounds int           `group:"time" default:"1" help:"How often each gateway is restarted."`
	processFlags
	reportFlags
	failedFlags
}

// maxWaiting is how many submissions wait for gateways that are away. Each costs
// a goroutine; what is due beyond them is counted as never sent.
const maxWaiting = 50_000

// morePatience is how much longer a client tries than a restart may take.
const morePatience = 30 * time.Second

func (c *restartCmd) Run(ctx context.Context, p *program) error {
	criteria := (&drillFlags{failedFlags: c.failedFlags, MaxLost: -1}).all()
	rolling := &restartDrill{cmd: c, program: p}
	in, err := c.access()
	if err := cmp.Or(err, criteria.validate(), c.validate(), c.reportFlags.validate(), c.processFlags.validate()); err != nil {
		return err
	}
	if err := rolling.parse(); err != nil {
		return err
	}
	steady := c.steady(rolling.urls(), in, verify.NewRecorder())
	if err := asUsage(steady.Validate()); err != nil {
		return err
	}
	logs, done, err := c.logs()
	if err != nil {
		return err
	}
	defer done()
	return p.single(ctx, single{
		files: &c.reportFlags, criteria: criteria.criteria(), verdicts: rolling.verdicts, forms: rolling.forms,
		measure: func() (*result.Run, error) { return rolling.run(ctx, steady, logs) },
	})
}

func (c *restartCmd) validate() error {
	return usage(
		rule{c.Before <= 0 || c.After <= 0, "--before and --after must be above 0"},
		wrongRounds(c.Rounds),
		rule{len(c.Ready) != 0 && len(c.Ready) != len(c.Gateway), "--ready must be given once for each --gateway, or not at all"},
	)
}

func (c *restartCmd) steady(urls []string, in access.Access, recorder *verify.Recorder) traffic.Steady {
	return traffic.Steady{
		URLs: urls, Access: in, Clients: c.Connections, Rate: c.Rate, Patience: c.StopTimeout + c.StartTimeout + morePatience,
		MaxWaiting: maxWaiting, Signers: traffic.Signers{Base: c.SignerBase, Count: c.Signers}, Verify: recorder,
	}
}

// forms are those of a run, and with it what it has not: the restarts themselves.
func (d *restartDrill) forms(run *result.Run) forms {
	f := formsOf(run)
	f.text = func(w io.Writer) error { return errors.Join(d.text(w), report.Text(w, run)) }
	f.json = func(w io.Writer) error { return d.json(w, run) }
	return f
}

func (d *restartDrill) text(w io.Writer) error {
	var text strings.Builder
	for _, r := range d.restarts {
		fmt.Fprintf(&text, "at %6.1f s  %s: ended after %.2f s, ready again %.2f s later", r.At, r.Gateway, r.EndSeconds, r.StartSeconds)
		if r.Wrong != "" {
			fmt.Fprintf(&text, " (%s)", strings.TrimSpace(r.Wrong))
		}
		text.WriteByte('\n')
	}
	n := d.noticed
	fmt.Fprintf(&text, "clients     %d connections closed in order (1012), %d lost; %d left because their gateway said that it drains; %d opened again, after %d attempts that failed\n",
		n.Closed, n.Lost-n.Closed, n.Drained, n.Opened, n.Failures)
	fmt.Fprintf(&text, "repeated    %s\n", d.repeats())
	fmt.Fprintf(&text, "unknown     %d settled by asking again at the end\n\n", n.Settled)
	_, err := io.WriteString(w, text.String())
	return err
}

// repeats is how many tries the clients repeated, and why.
func (d *restartDrill) repeats() string {
	var sum int64
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(d.repeated)) {
		sum += d.repeated[why]
		parts = append(parts, fmt.Sprintf("%s %d", why, d.repeated[why]))
	}
	if sum == 0 {
		return "no try: each request was answered the first time"
	}
	return fmt.Sprintf("%d tries by request id, which the figures below do not show: %s", sum, strings.Join(parts, ", "))
}

func (d *restartDrill) json(w io.Writer, run *result.Run) error {
	var text bytes.Buffer
	if err := report.JSON(&text, run); err != nil {
		return err
	}
	var form map[string]any
	if err := json.Unmarshal(text.Bytes(), &form); err != nil {
		return err
	}
	form["restarts"], form["noticed"], form["repeated"] = d.restarts, d.noticed, d.repeated
	return writeJSON(w, form)
}

func splitGateway(text string) (url string, command []string, err error) {
	url, line, ok := strings.Cut(text, "=")
	if !ok {
		return "", nil, fmt.Errorf("%q is not like ws://127.0.0.1:8080/ws=COMMAND", text)
	}
	command, err = process.Split(line)
	return withPath(url), command, err
}

// errorGrace is how long requests may still be answered once a gateway did not
// come back.
const errorGrace = 2 * time.Second

// restartDrill is a rolling restart that runs. It belongs to one goroutine.
type restartDrill struct {
	cmd     *restartCmd
	program *program
	nodes   []*restartNode

	restarts []restarted
	noticed  traffic.Noticed
	repeated map[string]int64
}

type restartNode struct {
	url     string
	command []string
	ready   func(context.Context) error
	served  []string // URLs that nobody may answer at before it is started
	log     string
	running *process.Process // nil: it does not run
}

type restarted struct {
	Gateway string  `json:"gateway"`
	At      float64 `json:"at"` // seconds since the load began
	// EndSeconds is from when it was asked to end to when it had, and
	// StartSeconds from then to when it was ready again.
	EndSeconds   float64 `json:"endSeconds"`
	StartSeconds float64 `json:"startSeconds"`
	Wrong        string  `json:"wrong,omitempty"` // it had to be killed, or ended with a status other than 0
}

func (d *restartDrill) parse() error {
	for i, text := range d.cmd.Gateway {
		url, command, err := splitGateway(text)
		if err != nil {
			return &usageError{fmt.Errorf("--gateway: %w", err)}
		}
		n := &restartNode{url: url, command: command, ready: process.Handshakes(url), served: []string{url}}
		if len(d.cmd.Ready) > 0 {
			n.ready = process.AnswersOK(d.cmd.Ready[i])
			n.served = append(n.served, d.cmd.Ready[i])
		}
		d.nodes = append(d.nodes, n)
	}
	return nil
}

func (d *restartDrill) urls() []string {
	var urls []string
	for _, n := range d.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

// run starts all gateways, makes the load, restarts them, and ends them.
func (d *restartDrill) run(ctx context.Context, steady traffic.Steady, logs string) (run *result.Run, err error) {
	defer func() { err = errors.Join(err, d.end(ctx)) }()
	for i, n := range d.nodes {
		n.log = filepath.Join(logs, fmt.Sprintf("gateway-%d.log", i+1))
		// Only the first time: what one that was killed has left of itself may still
		// be going when its successor starts.
		if err := process.Vacant(ctx, n.served...); err != nil {
			return nil, fmt.Errorf("--gateway: %w", err)
		}
		if err := d.start(ctx, n); err != nil {
			return nil, err
		}
	}
	run, err = d.program.observed(ctx, d.cmd.pages(steady.URLs, steady.Access), func(h hooks) (*result.Run, error) {
		steady.Progress = h.second
		load, err := steady.Start(ctx)
		if err != nil {
			return nil, err
		}
		h.begin()
		began := time.Now()
		err = d.roll(ctx, load, began)
		patience := ctx
		if err != nil { // a gateway that stays away is not waited for
			limited, cancel := context.WithTimeout(ctx, errorGrace)
			defer cancel()
			patience = limited
		}
		run := load.Stop(patience)
		h.end()
		d.noticed, d.repeated = load.Noticed(), load.Repeated()
		run.Command, run.Interrupted = "restart", ctx.Err() != nil
		return run, err
	})
	if run == nil || err != nil || run.Interrupted {
		return run, err
	}
	run.Verify, err = d.program.check(ctx, steady.Verify, run, steady.URLs, steady.Access)
	return run, err
}

// roll restarts one gateway after the other. An error is one that the drill
// cannot go on after; it is none when ctx ends.
func (d *restartDrill) roll(ctx context.Context, load *traffic.SteadyLoad, began time.Time) error {
	if wait.For(ctx, d.cmd.Before) != nil {
		return nil
	}
	for range d.cmd.Rounds {
		for _, n := range d.nodes {
			load.Enter(traffic.During)
			err := d.restart(ctx, n, began)
			load.Enter(traffic.After)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if wait.For(ctx, d.cmd.After) != nil {
				return nil
			}
		}
	}
	return nil
}

// restart ends a gateway and starts it again.
func (d *restartDrill) restart(ctx context.Context, n *restartNode, began time.Time) error {
	asked := time.Now()
	r := restarted{Gateway: n.url, At: asked.Sub(began).Seconds()}
	if err := n.running.Stop(d.cmd.StopTimeout); err != nil {
		r.Wrong = err.Error()
	}
	n.running = nil
	ended := time.Now()
	err := d.start(ctx, n)
	r.EndSeconds, r.StartSeconds = ended.Sub(asked).Seconds(), time.Since(ended).Seconds()
	if err == nil {
		d.restarts = append(d.restarts, r)
	}
	return err
}

// start starts a gateway and waits until it is ready.
func (d *restartDrill) start(ctx context.Context, n *restartNode) error {
	running, err := d.cmd.start(ctx, d.program, n.url, n.command, n.log, n.ready)
	n.running = running
	return err
}

// end ends all gateways that run. That one had to be killed is an error, but not
// when somebody does not want to wait.
func (d *restartDrill) end(ctx context.Context) error {
	var errs []error
	for _, n := range d.nodes {
		if n.running == nil {
			continue
		}
		if err := n.running.Stop(d.cmd.StopTimeout); err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.url, err))
		}
	}
	return errors.Join(errs...)
}

func (d *restartDrill) verdicts(run *result.Run) []result.Verdict {
	want := d.cmd.Rounds * len(d.nodes)
	well := 0
	for _, r := range d.restarts {
		if r.Wrong == "" {
			well++
		}
	}
	return []result.Verdict{
		{
			Name: "requests whose outcome stayed unknown", Want: "none", Got: fmt.Sprint(run.Failed), Passed: run.Failed == 0,
		},
		{
			Name: "gateways that ended when asked to and came back", Want: fmt.Sprintf("%d of %d", want, want),
			Got: fmt.Sprintf("%d of %d", well, want), Passed: well == want,
		},
	}
}
