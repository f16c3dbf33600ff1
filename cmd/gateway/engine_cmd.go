package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"noncegate/engine"
	"noncegate/flush"
	"noncegate/nonce"
)

type engineCmd struct {
	Status    engineStatusCmd    `cmd:"" help:"Show the state of the engine."`
	Switch    engineSwitchCmd    `cmd:"" help:"Switch the cluster between its engines."`
	Reconcile engineReconcileCmd `cmd:"" help:"Compare Redis with PostgreSQL and print every difference."`
	Replay    engineReplayCmd    `cmd:"" help:"Apply what PostgreSQL has not followed yet, dead letters too."`
	Rebuild   engineRebuildCmd   `cmd:"" help:"Let a node copy its signers from PostgreSQL to Redis anew."`
}

type engineStatusCmd struct{ adminCmd }

// Run implements the command.
func (c *engineStatusCmd) Run(ctx context.Context, p *program) error {
	var s engineStatus
	if err := c.ask(ctx, http.MethodGet, "/engine", nil, &s); err != nil {
		return err
	}
	return c.print(p.stdout, &s, func(w io.Writer) error { return printEngine(w, &s) })
}

func printEngine(w io.Writer, s *engineStatus) error {
	t := columns(w)
	fmt.Fprintf(t, "state\t%s\n", s.State)
	if s.Why != "" {
		fmt.Fprintf(t, "note\t%s\n", s.Why)
	}
	if s.Available {
		if s.Goal != s.State {
			fmt.Fprintf(t, "goal\t%s\n", s.Goal)
		}
		fmt.Fprintf(t, "since\t%s\tby %s\t%s\n", s.ChangedAt.UTC().Format(time.RFC3339), cmp.Or(s.By, "-"), s.Reason)
		if s.State == nonce.StateDegraded {
			fmt.Fprintf(t, "observed until\t%s\n", s.ObserveUntil.UTC().Format(time.RFC3339))
		}
		if s.Here != nil || s.Rehearsing != nil || s.Signers == 0 && s.Logs > 0 {
			return printLogs(t, s)
		}
		fmt.Fprintf(t, "signers\t%d by Redis\t%d of them unowned\t%d in doubt\n", s.Signers, s.Unowned, s.Doubtful)
		if s.Doubtful > 0 {
			fmt.Fprintf(t, "doubt ends\t%s\n", s.DoubtUntil.UTC().Format(time.RFC3339))
		}
		fmt.Fprintf(t, "unflushed\t%d events\toldest %s\t%d dead letters\n", s.Waiting, cmp.Or(s.Oldest, "-"), s.Dead)
		fmt.Fprintf(t, "flush shards\t%d\t%d of them by %s\n", s.Shards, s.Held, s.Node)
		fmt.Fprintf(t, "Redis\t%s\n", s.Redis)
	}
	return t.Flush()
}

// printLogs prints the rest of what there is to say of logs.
func printLogs(t *tabwriter.Writer, s *engineStatus) error {
	fmt.Fprintf(t, "shards\t%d of %d have a log\t%d logs lost\n", s.Logs, s.Shards, s.Lost)
	for _, l := range s.Here {
		fmt.Fprintf(t, "log %d\thead %d\tshipped %d\t%d signers behind, %s\tgrant %s\t%s\n", l.Shard, l.Head, l.Shipped, l.Signers, l.Behind, l.Grant, l.Trouble)
	}
	if s.Rehearse != "" {
		fmt.Fprintf(t, "rehearsal\t%d of %d shards have kept up for %s\n", s.Rehearsed, s.Shards, s.Rehearse)
	}
	for _, r := range s.Rehearsing {
		fmt.Fprintf(t, "shard %d\tkept up for %s\t%s\n", r.Shard, r.KeptUp, r.Trouble)
	}
	fmt.Fprintf(t, "Redis\t%s\n", s.Redis)
	return t.Flush()
}

type engineSwitchCmd struct {
	To     string `arg:"" help:"dual-write, performance, drain or reliable."`
	Force  bool   `help:"Pass over what is no danger but a reason to wait: doubt, dead letters, events that wait, the time of observation."`
	DryRun bool   `help:"Look whether it is possible, and change nothing."`
	Wait   bool   `help:"Wait until the state is reached, and say at last which one it is."`
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *engineSwitchCmd) Validate() error {
	if _, ok := switchTargets[c.To]; !ok {
		return fmt.Errorf("%q is none of dual-write, performance, drain and reliable", c.To)
	}
	return c.adminCmd.Validate()
}

// Run implements the command.
func (c *engineSwitchCmd) Run(ctx context.Context, p *program) error {
	var r engine.SwitchReport
	err := c.ask(ctx, http.MethodPost, "/engine/switch", switchQuestion{To: c.To, Force: c.Force, DryRun: c.DryRun}, &r)
	if refused, ok := errors.AsType[*adminRefusal](err); ok {
		printChecks(p.stderr, refused.Checks)
		return err
	}
	if err != nil {
		return err
	}
	if !c.Wait || c.DryRun {
		return c.print(p.stdout, &r, func(w io.Writer) error { return printSwitch(w, &r) })
	}
	return c.runToTheEnd(ctx, p.stdout, &r)
}

// waited is what the command prints as JSON of a switch whose end it waited for.
type waited struct {
	*engine.SwitchReport
	State      nonce.EngineState `json:"state,omitempty"` // as it was seen last
	Generation int64             `json:"generation,omitempty"`
}

// runToTheEnd prints the switch that was made, waits for its end, and prints the state
// that it led to: the last line is about what is, not about the first step.
func (c *engineSwitchCmd) runToTheEnd(ctx context.Context, w io.Writer, r *engine.SwitchReport) error {
	if c.JSON {
		s, err := c.wait(ctx)
		return errors.Join(err, c.print(w, waited{r, s.State, s.Number}, nil))
	}
	if err := printSwitch(w, r); err != nil {
		return err
	}
	s, err := c.wait(ctx)
	if err == nil {
		_, err = fmt.Fprintf(w, "the state is %s, generation %d: %s\n", s.State, s.Number, s.Reason)
	}
	return err
}

func printChecks(w io.Writer, checks []engine.CheckResult) {
	t := columns(w)
	for _, c := range checks {
		word := "ok"
		switch {
		case c.Forced:
			word = "forced"
		case !c.OK:
			word = "NO"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", word, c.Name, c.Text)
	}
	t.Flush()
}

func printSwitch(w io.Writer, r *engine.SwitchReport) error {
	printChecks(w, r.Checks)
	verb := "switched"
	if r.DryRun {
		verb = "would switch"
	}
	toward := ""
	if r.Goal != r.To {
		toward = ", on the way to " + string(r.Goal)
	}
	_, err := fmt.Fprintf(w, "%s from %s to %s%s\n", verb, r.From, r.To, toward)
	return err
}

// waitPoll is how often the state is looked at.
const waitPoll = 200 * time.Millisecond

// wait waits until the state is the one asked for, and returns what was seen last.
// drain ends in RELIABLE.
func (c *engineSwitchCmd) wait(ctx context.Context) (s engineStatus, err error) {
	want := switchTargets[c.To]
	if want == nonce.StateDrain {
		want = nonce.StateReliable
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		var now engineStatus
		if err := c.ask(ctx, http.MethodGet, "/engine", nil, &now); err != nil {
			return s, err
		}
		if s = now; s.State == want {
			return s, nil
		}
		if s.State == nonce.StateDegraded && want != nonce.StateReliable {
			return s, fmt.Errorf("it became %s: %s", s.State, s.Reason)
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("it is still %s: %s", s.State, s.Reason)
		case <-time.After(waitPoll):
		}
	}
}

type engineReconcileCmd struct{ adminCmd }

// Run implements the command. Differences make it fail.
func (c *engineReconcileCmd) Run(ctx context.Context, p *program) error {
	var r engine.ReconcileReport
	if err := c.ask(ctx, http.MethodPost, "/engine/reconcile", nil, &r); err != nil {
		return err
	}
	if err := c.print(p.stdout, &r, func(w io.Writer) error { return printReconcile(w, &r) }); err != nil {
		return err
	}
	if r.Different > 0 {
		return fmt.Errorf("%d signers differ", r.Different)
	}
	return nil
}

func printReconcile(w io.Writer, r *engine.ReconcileReport) error {
	t := columns(w)
	if len(r.Differences) > 0 {
		fmt.Fprintln(t, "SIGNER\tWHAT\tREDIS\tPOSTGRESQL")
	}
	for _, d := range r.Differences {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Signer, d.What, d.Redis, d.Store)
	}
	if r.More {
		fmt.Fprintln(t, "and more")
	}
	fmt.Fprintf(t, "%d equal, %d different, %d behind, %d busy, in %s\n", r.Equal, r.Different, r.Behind, r.Busy, r.Took)
	return t.Flush()
}

type engineReplayCmd struct{ adminCmd }

// Run implements the command. What is left makes it fail.
func (c *engineReplayCmd) Run(ctx context.Context, p *program) error {
	var r flush.DrainReport
	if err := c.ask(ctx, http.MethodPost, "/engine/replay", nil, &r); err != nil {
		return err
	}
	err := c.print(p.stdout, &r, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%d events settled, %d of them dead letters; %d events and %d dead letters are left\n", r.Settled, r.Revived, r.Left, r.LeftDead)
		return err
	})
	if err == nil && r.Left+r.LeftDead > 0 {
		err = errors.New("not everything could be applied; the log of the gateway says why")
	}
	return err
}

type engineRebuildCmd struct{ adminCmd }

// Run implements the command.
func (c *engineRebuildCmd) Run(ctx context.Context, p *program) error {
	var r engine.RebuildReport
	if err := c.ask(ctx, http.MethodPost, "/engine/rebuild", nil, &r); err != nil {
		return err
	}
	return c.print(p.stdout, &r, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%d signers are copied anew; %d belong to other nodes, %d are served by Redis already\n", r.Rebuilt, r.Others, r.Skipped)
		return err
	})
}
