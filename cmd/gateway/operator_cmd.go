package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"noncegate/internal/admin"
)

// Why is the reason of an act, and whether it is one.
type Why struct {
	Reason string `help:"Why, for the audit, and of a release for nonce_list."`
	DryRun bool   `help:"Say what would be done, by what decides of it, and change nothing."`
}

func (w Why) because() admin.Because { return admin.Because(w) }

// foreseen prints what a dry run has said, or else what was done.
func foreseen(w io.Writer, f *admin.Foreseen, done func() error) error {
	if !f.DryRun {
		return done()
	}
	_, err := fmt.Fprintf(w, "would do: %s\n", f.WouldDo)
	return err
}

type nodeCmd struct {
	Drain nodeDrainCmd `cmd:"" help:"End a node in order: its connections are sent away, its shards given to other nodes."`
}

type nodeDrainCmd struct {
	Node string `arg:"" help:"Id of the node, which is the one at --admin."`
	Why
	adminCmd
}

// Run implements the command.
func (c *nodeDrainCmd) Run(ctx context.Context, p *program) error {
	o := admin.DrainOrder{Node: c.Node, Because: c.because()}
	_, err := tell(ctx, p, &c.adminCmd, admin.DrainNode, o, func(w io.Writer, d *admin.DrainedNode) error {
		return foreseen(w, &d.Foreseen, func() error { _, err := fmt.Fprintf(w, "%s drains, and ends\n", d.Node); return err })
	})
	return err
}

type consoleCmd struct{ adminCmd }

// Run implements the command. The link alone goes to standard output.
func (c *consoleCmd) Run(ctx context.Context, p *program) error {
	t, err := ask(ctx, &c.adminCmd, admin.MakeTicket, admin.None{})
	if err != nil {
		return err
	}
	link := strings.TrimSuffix(c.Admin, "/") + "/#ticket=" + t.Ticket
	if c.JSON {
		return printJSON(p.stdout, struct {
			URL   string    `json:"url"`
			Until time.Time `json:"until"`
		}{link, t.Until})
	}
	fmt.Fprintf(p.stderr, "Open this link in a browser within a minute. It works once.\n")
	_, err = fmt.Fprintln(p.stdout, link)
	return err
}

type lookCmd struct {
	What  string `arg:"" help:"overview, findings, settings, audit, principals, keys or me."`
	After int64  `default:"0" min:"0" help:"Of the audit: only lines of a higher number."`
	adminCmd
}

// looks are what can be looked at.
var looks = []string{"overview", "findings", "settings", "audit", "principals", "keys", "me"}

// Validate reports the first argument that cannot be used.
func (c *lookCmd) Validate() error {
	for _, word := range looks {
		if c.What == word {
			return c.adminCmd.Validate()
		}
	}
	return fmt.Errorf("%q must be %s", c.What, strings.Join(looks, ", "))
}

// Run implements the command. What it prints is JSON.
func (c *lookCmd) Run(ctx context.Context, p *program) error {
	path := admin.Prefix + c.What
	if c.After > 0 {
		path += "?after=" + strconv.FormatInt(c.After, 10)
	}
	var said json.RawMessage
	if err := c.ask(ctx, http.MethodGet, path, http.NoBody, &said); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "%s\n", said)
	return err
}

type jobCmd struct {
	ReleaseUnknown jobReleaseCmd `cmd:"" help:"Release all unknown holds of a principal, of signers that were not written for some time."`
	Floors         jobFloorsCmd  `cmd:"" help:"Raise the floors of the signers in a file."`
	List           jobListCmd    `cmd:"" help:"List the last jobs of a node."`
	Show           jobShowCmd    `cmd:"" help:"Show what became of each item of a job."`
	Cancel         jobCancelCmd  `cmd:"" help:"Have a job begin nothing more."`
}

type jobReleaseCmd struct {
	Principal string        `arg:"" optional:"" help:"Who holds them. None where clients need not say who they are."`
	OlderThan time.Duration `default:"0s" min:"0s" help:"How long ago their signers were written last, at least."`
	Why
	adminCmd
}

// Run implements the command.
func (c *jobReleaseCmd) Run(ctx context.Context, p *program) error {
	o := admin.JobOrder{Kind: "releaseUnknown", Principal: c.Principal, OlderThan: c.OlderThan.String(), Because: c.because()}
	return c.begin(ctx, p, o)
}

// begin begins a job and says how to look at it.
func (c *adminCmd) begin(ctx context.Context, p *program, o admin.JobOrder) error {
	_, err := tell(ctx, p, c, admin.BeginJob, o, func(w io.Writer, b *admin.BegunJob) error {
		return foreseen(w, &b.Foreseen, func() (err error) {
			if b.Count == 0 {
				_, err = fmt.Fprintln(w, "there is nothing to do")
			} else {
				_, err = fmt.Fprintf(w, "job %s began, with %d items; gateway job show %s\n", b.ID, b.Count, b.ID)
			}
			return err
		})
	})
	return err
}

type jobFloorsCmd struct {
	File string `arg:"" help:"A line for each signer: its name, a blank, its floor. -: standard input."`
	Why
	adminCmd
}

// Run implements the command.
func (c *jobFloorsCmd) Run(ctx context.Context, p *program) error {
	in := io.Reader(os.Stdin)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	floors, err := readFloors(in)
	if err != nil {
		return err
	}
	return c.begin(ctx, p, admin.JobOrder{Kind: "floors", Floors: floors, Because: c.because()})
}

// readFloors reads lines of signers and floors. Empty ones, and those that begin with #, are passed over.
func readFloors(in io.Reader) (floors []admin.NewFloor, err error) {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("line %d must be a signer and its floor", n)
		}
		floor, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil || floor < 0 {
			return nil, fmt.Errorf("line %d: the floor %.40q must be a whole number, 0 or higher", n, words[1])
		}
		floors = append(floors, admin.NewFloor{Signer: words[0], Floor: floor})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(floors) == 0 {
		return nil, errors.New("there is no signer in it")
	}
	return floors, nil
}

type jobListCmd struct{ adminCmd }

// Run implements the command.
func (c *jobListCmd) Run(ctx context.Context, p *program) error {
	_, err := tell(ctx, p, &c.adminCmd, admin.ListJobs, admin.None{}, func(w io.Writer, l *admin.JobList) error {
		return printJobs(w, l.Jobs)
	})
	return err
}

func printJobs(w io.Writer, jobs []admin.JobView) error {
	return list(w, "JOB\tKIND\tBY\tSTATE\tITEMS\tDONE\tFAILED\tLEFT\tSTARTED\tENDED\tREASON", jobs, func(j *admin.JobView) []any {
		return []any{j.ID, j.Kind, j.Principal, j.State, j.Count, j.Done, j.Failed, j.Left, j.StartedAt, j.EndedAt, j.Reason}
	}).Flush()
}

type jobShowCmd struct {
	ID    string `arg:"" help:"The job, as job list shows it."`
	After int64  `default:"0" min:"0" help:"Only outcomes behind so many."`
	adminCmd
}

// Run implements the command.
func (c *jobShowCmd) Run(ctx context.Context, p *program) error {
	q := admin.JobQuestion{ID: c.ID, After: strconv.FormatInt(c.After, 10)}
	_, err := tell(ctx, p, &c.adminCmd, admin.ShowJob, q, func(w io.Writer, r *admin.JobResult) error {
		if err := printJobs(w, []admin.JobView{r.Job}); err != nil {
			return err
		}
		return list(w, "\nSIGNER\tNONCE\tFLOOR\tOUTCOME\tERROR", r.Outcomes, func(o *admin.JobOutcome) []any {
			return []any{o.Signer, o.Nonce, o.Floor, o.Outcome, o.Error}
		}).Flush()
	})
	return err
}

type jobCancelCmd struct {
	ID string `arg:"" help:"The job, as job list shows it."`
	Why
	adminCmd
}

// Run implements the command.
func (c *jobCancelCmd) Run(ctx context.Context, p *program) error {
	o := admin.CancelOrder{ID: c.ID, Because: c.because()}
	_, err := tell(ctx, p, &c.adminCmd, admin.CancelJob, o, func(w io.Writer, r *admin.CancelledJob) error {
		return foreseen(w, &r.Foreseen, func() error { _, err := fmt.Fprintf(w, "job %s is cancelled\n", r.Job.ID); return err })
	})
	return err
}
