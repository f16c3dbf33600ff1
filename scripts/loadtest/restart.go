package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
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

// Run implements the command.
func (c *restartCmd) Run(ctx context.Context, p *program) error {
	criteria, err := (&drillFlags{failedFlags: c.failedFlags, MaxLost: -1}).criteria()
	if err := errors.Join(err, c.validate(), c.reportFlags.validate(), c.processFlags.validate()); err != nil {
		return err
	}
	rolling := &restartDrill{cmd: c, say: p.say}
	if err := rolling.parse(); err != nil {
		return err
	}
	in, err := c.access()
	if err != nil {
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
		files: &c.reportFlags, criteria: criteria, verdicts: rolling.verdicts, forms: rolling.forms,
		measure: func() (*result.Run, error) { return rolling.run(ctx, p, steady, logs) },
	})
}

func (c *restartCmd) validate() error {
	switch {
	case c.Before <= 0 || c.After <= 0:
		return &usageError{errors.New("--before and --after must be above 0")}
	case c.Rounds < 1 || c.Rounds > 1000:
		return &usageError{errors.New("--rounds must be 1 to 1000")}
	case len(c.Ready) != 0 && len(c.Ready) != len(c.Gateway):
		return &usageError{errors.New("--ready must be given once for each --gateway, or not at all")}
	}
	return nil
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

// json is the run's JSON with the restarts added.
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

// splitGateway reads a URL=COMMAND.
func splitGateway(text string) (url string, command []string, err error) {
	url, line, ok := strings.Cut(text, "=")
	if !ok {
		return "", nil, fmt.Errorf("%q is not like ws://127.0.0.1:8080/ws=COMMAND", text)
	}
	command, err = process.Split(line)
	return withPath(url), command, err
}
