package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// runCmd loads gateways once.
type runCmd struct {
	loadFlags
	Verify bool `group:"load" help:"Check the answers about some of the signers, and afterwards what the gateway says of these: no nonce handed out twice, every one accounted for, marks kept. The signers must be unused (--signer-base)."`
	reportFlags
	lostFlags
	MaxE2EP99   time.Duration `name:"max-e2e-p99" group:"criteria" default:"0s" help:"Most time for 99 % of the requests, from when each was due to its answer, or with --subscribers to its event. 0s: not judged."`
	GrowthCheck bool          `group:"criteria" default:"true" negatable:"" help:"No stage of a gateway may grow steadily over the run, which takes the figures of its /metrics."`
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, err := c.load()
	criteria, wrong := c.criteria()
	criteria.MaxE2EP99, criteria.Growth = c.MaxE2EP99, c.GrowthCheck
	if err := cmp.Or(err, wrong, c.reportFlags.validate(), usage(rule{c.MaxE2EP99 < 0, "--max-e2e-p99 must not be negative"})); err != nil {
		return err
	}
	return p.single(ctx, &c.reportFlags, criteria, func() (*result.Run, []result.Verdict, error) {
		if c.Verify {
			if load.Verify, err = traffic.NewRecorder(ctx, c.URL, load.Access, load.Signers); err != nil {
				return nil, nil, advised(err)
			}
		}
		run, err := p.loaded(ctx, c.pages(c.URL, load.Access), load)
		if run != nil && err == nil && load.Verify != nil {
			run.Verify, err = load.Verify.Judge(ctx, run.Interrupted)
		}
		return run, nil, advised(err)
	})
}

// single makes a run, which may come with an error and with verdicts of its own, judges it, reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, files *reportFlags, criteria report.Criteria, measure func() (*result.Run, []result.Verdict, error)) error {
	if err := files.writable(); err != nil {
		return err
	}
	run, verdicts, err := measure()
	if run == nil {
		return interruptedOr(ctx, err)
	}
	report.Judge(run, criteria, verdicts...)
	err = errors.Join(err, p.write(files, run, report.Of(run)))
	switch {
	case run.Interrupted:
		return errInterrupted
	case err == nil && !run.Passed:
		return errFailed
	}
	return err
}

func interruptedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func (p *program) progress(s result.Second) {
	p.say("%4.0f s  %8d/s  p50 %.2f  p99 %.2f ms  refused %d  failed %d", s.At+s.Seconds, s.Acknowledged, s.P50, s.P99, s.Refused, s.Failed)
}

// loaded makes a load while the pages of its gateways are read. A result may come with an error.
func (p *program) loaded(ctx context.Context, pages observe.Pages, load traffic.Load) (*result.Run, error) {
	observer, begin := pages.Start(ctx), load.BeginMeasure
	load.BeginMeasure = func() {
		observer.Begin()
		if begin != nil {
			begin()
		}
	}
	load.EndMeasure, load.Progress = func() { observer.End() }, p.progress
	run, err := load.Run(ctx)
	nodes := observer.End() // the same once more; of a load that was not measured, why there is nothing
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// writable looks whether the files that the flags name can be written, so that a wrong path is told at once and not after an hour; what
// they had stays until there is a result.
func (f *reportFlags) writable() error {
	for flag, path := range map[string]string{"--json": f.JSON, "--html": f.HTML} {
		if path == "" || path == "-" {
			continue
		}
		opened, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError{fmt.Errorf("%s cannot be written: %w", flag, err)}
		}
		opened.Close() // nothing was written
	}
	return nil
}

// write writes what was found, and its report in all forms that the flags ask for.
func (p *program) write(f *reportFlags, found any, r report.Report) (err error) {
	switch f.JSON {
	case "-":
		err = writeJSON(p.stdout, found)
	case "":
		err = r.Text(p.stdout)
	default:
		err = errors.Join(r.Text(p.stdout), writeTo(f.JSON, func(w io.Writer) error { return writeJSON(w, found) }))
	}
	if f.HTML != "" {
		err = errors.Join(err, writeTo(f.HTML, r.HTML))
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func writeTo(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// advised adds to the error of a load on gateways that run already what is wrong most often.
func advised(err error) error {
	if err == nil {
		return nil
	}
	dial, _ := errors.AsType[*client.DialError](err)
	switch {
	// Windows has an error number of its own.
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(err.Error(), "actively refused it"):
		return fmt.Errorf("%w; is the gateway running? (make run)", err)
	case dial != nil && dial.Status == http.StatusNotFound, strings.Contains(err.Error(), websocket.ErrBadHandshake.Error()+": 404"):
		return fmt.Errorf("%w; a gateway takes WebSockets at /ws", err)
	}
	return err
}
