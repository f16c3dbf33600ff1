package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"noncegate/internal/admin"
	"noncegate/nonce/performance"
)

type engineCmd struct {
	Status    engineStatusCmd    `cmd:"" help:"Show the state of the engine."`
	Switch    engineSwitchCmd    `cmd:"" help:"Switch the cluster between its engines."`
	Reconcile engineReconcileCmd `cmd:"" help:"Compare a node's logs in Redis with its memory and with PostgreSQL; print every difference."`
	Replay    engineReplayCmd    `cmd:"" help:"Ship what a node's logs in Redis have to PostgreSQL now."`
}

type engineStatusCmd struct{ adminCmd }

// Run implements the command.
func (c *engineStatusCmd) Run(ctx context.Context, p *program) error {
	_, err := tell(ctx, p, &c.adminCmd, admin.ShowEngine, admin.None{}, printEngine)
	return err
}

func printEngine(w io.Writer, s *admin.EngineStatus) error {
	t := columns(w)
	fmt.Fprintf(t, "state\t%s\n", s.State)
	if s.Why != "" {
		fmt.Fprintf(t, "note\t%s\n", s.Why)
	}
	if s.Available {
		if s.Goal != s.State {
			fmt.Fprintf(t, "goal\t%s\n", s.Goal)
		}
		if s.Number > 0 {
			fmt.Fprintf(t, "since\t%s\t%s\n", s.ChangedAt.UTC().Format(time.RFC3339), s.Reason)
		}
		fmt.Fprintf(t, "shards\t%d of %d have a log\t%d logs lost\n", s.Logs, s.Shards, s.Lost)
		for _, l := range s.Here {
			fmt.Fprintf(t, "log %d\thead %d\tshipped %d\t%d signers behind, %s\tgrant %s\t%s\n",
				l.Shard, l.Head, l.Shipped, l.Signers, l.Behind, l.Grant, l.Trouble)
		}
		if s.Rehearse != "" {
			fmt.Fprintf(t, "rehearsal\t%d of %d shards have kept up for %s\n", s.Rehearsed, s.Shards, s.Rehearse)
		}
		for _, r := range s.Rehearsing {
			fmt.Fprintf(t, "shard %d\tkept up for %s\t%s\n", r.Shard, r.KeptUp, r.Trouble)
		}
		fmt.Fprintf(t, "Redis\t%s\n", s.Redis)
	}
	return t.Flush()
}

type engineSwitchCmd struct {
	To         string `arg:"" help:"performance or reliable."`
	Generation *int64 `placeholder:"N" help:"The engine is switched only if it was not since this generation. Default: that of now."`
	Wait       bool   `help:"Wait until the state is reached, and say at last which one it is."`
	Why
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *engineSwitchCmd) Validate() error {
	if _, ok := admin.SwitchTargets[c.To]; !ok {
		return fmt.Errorf("%q is "+admin.SwitchWords, c.To)
	}
	return c.adminCmd.Validate()
}

// Run implements the command.
func (c *engineSwitchCmd) Run(ctx context.Context, p *program) error {
	if c.Generation == nil {
		is, err := ask(ctx, &c.adminCmd, admin.ShowEngine, admin.None{})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "the state is %s, generation %d\n", is.State, is.Number)
		c.Generation = &is.Number
	}
	o := admin.SwitchOrder{To: c.To, Generation: c.Generation, Because: c.because()}
	r, err := ask(ctx, &c.adminCmd, admin.SwitchEngine, o)
	if refused, ok := errors.AsType[*adminRefusal](err); ok {
		printChecks(p.stderr, refused.said.Checks)
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
	*admin.SwitchReport
	State      performance.State `json:"state,omitempty"` // as it was seen last
	Generation int64             `json:"generation,omitempty"`
}

// runToTheEnd prints the switch that was made, waits for its end, and prints the state
// that it led to: the last line is about what is, not about the first step.
func (c *engineSwitchCmd) runToTheEnd(ctx context.Context, w io.Writer, r *admin.SwitchReport) error {
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

func printChecks(w io.Writer, checks []admin.EngineCheck) {
	t := columns(w)
	for _, c := range checks {
		word := map[bool]string{true: "ok", false: "NO"}[c.OK]
		fmt.Fprintf(t, "%s\t%s\t%s\n", word, c.Name, c.Text)
	}
	t.Flush()
}

func printSwitch(w io.Writer, r *admin.SwitchReport) error {
	printChecks(w, r.Checks)
	verb := "switched"
	if r.DryRun {
		verb = "would switch"
	}
	_, err := fmt.Fprintf(w, "%s from %s to %s\n", verb, r.From, r.To)
	return err
}

// waitPoll is how often the state is looked at.
const waitPoll = 200 * time.Millisecond

// wait waits until the state is the one asked for, and returns what was seen last.
func (c *engineSwitchCmd) wait(ctx context.Context) (s admin.EngineStatus, err error) {
	want := admin.SwitchTargets[c.To]
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for {
		now, err := ask(ctx, &c.adminCmd, admin.ShowEngine, admin.None{})
		if err != nil {
			return s, err
		}
		if s = now; s.State == want {
			return s, nil
		}
		if s.State == performance.Degraded && want != performance.Reliable {
			return s, fmt.Errorf("it became %s: %s", s.State, s.Reason)
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("it is still %s: %s", s.State, s.Reason)
		case <-time.After(waitPoll):
		}
	}
}

type engineReconcileCmd struct {
	Why
	adminCmd
}

// Run implements the command. Differences make it fail.
func (c *engineReconcileCmd) Run(ctx context.Context, p *program) error {
	r, err := tell(ctx, p, &c.adminCmd, admin.ReconcileEngine, c.because(), printReconcile)
	if err == nil && r.Different > 0 {
		err = fmt.Errorf("%d signers differ", r.Different)
	}
	return err
}

func printReconcile(w io.Writer, r *admin.ReconcileReport) error {
	return foreseen(w, &r.Foreseen, func() error { return printDifferences(w, r) })
}

func printDifferences(w io.Writer, r *admin.ReconcileReport) error {
	t := columns(w)
	if len(r.Differences) > 0 {
		fmt.Fprintln(t, "SIGNER\tWHAT\tREDIS\tPOSTGRESQL")
	}
	for _, d := range r.Differences {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Signer, d.What, d.Log, d.Memory)
	}
	fmt.Fprintf(t, "%d equal, %d different, in %s\n", r.Equal, r.Different, r.Took)
	return t.Flush()
}

type engineReplayCmd struct {
	Why
	adminCmd
}

// Run implements the command. What is left makes it fail.
func (c *engineReplayCmd) Run(ctx context.Context, p *program) error {
	r, err := tell(ctx, p, &c.adminCmd, admin.ReplayEngine, c.because(), func(w io.Writer, r *admin.ReplayReport) error {
		return foreseen(w, &r.Foreseen, func() error {
			_, err := fmt.Fprintf(w, "%d logs shipped, %d left\n", r.Shipped, r.Left)
			return err
		})
	})
	if err == nil && r.Left > 0 {
		err = errors.New("not everything could be shipped; the log of the gateway says why")
	}
	return err
}
