package main

import (
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
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// runCmd loads gateways once.
type runCmd struct {
	LoadFlags   `group:"load"`
	Verify      bool `group:"load" help:"${verify}"`
	ReportFlags `group:"report"`
	LostFlags   `group:"criteria"`
	MaxE2EP99   time.Duration `name:"max-e2e-p99" group:"criteria" default:"0s" help:"${max_e2e}"`
	GrowthCheck bool          `group:"criteria" default:"true" negatable:"" help:"${growth}"`
}

// Validate is called by the parser.
func (c *runCmd) Validate() error {
	return first(rule{c.MaxE2EP99 < 0, "--max-e2e-p99 must not be negative"})
}

func (c *runCmd) Run(ctx context.Context, p *program) error {
	load, criteria := c.Load, c.criteria()
	criteria.MaxE2EP99, criteria.Growth = c.MaxE2EP99, c.GrowthCheck
	return p.single(ctx, &c.ReportFlags, criteria, func() (run *result.Run, _ []result.Verdict, err error) {
		if c.Verify {
			if load.Verify, err = traffic.NewRecorder(ctx, c.URLs, load.Access, load.Signers); err != nil {
				return nil, nil, advised(err)
			}
		}
		run, err = p.loaded(ctx, &c.ReportFlags, load)
		if run != nil && err == nil && c.Verify {
			run.Verify, err = load.Verify.Judge(ctx, run.Interrupted)
		}
		return run, nil, advised(err)
	})
}

// measured makes a run, which may come with an error and with verdicts of its own.
type measured func() (*result.Run, []result.Verdict, error)

// single makes a run, judges it, reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, files *ReportFlags, criteria report.Criteria, measure measured) error {
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
func (p *program) loaded(ctx context.Context, f *ReportFlags, load traffic.Load) (*result.Run, error) {
	observer := f.pages(load.URLs, load.Access).Start(ctx)
	load.BeginMeasure, load.EndMeasure, load.Progress = observer.Begin, func() { observer.End() }, p.progress
	run, err := load.Run(ctx)
	nodes := observer.End() // the same once more; of a load that was not measured, why there is nothing
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// writable looks whether the files that the flags name can be written, so that a wrong path is told at once and not after an hour; what
// they had stays until there is a result.
func (f *ReportFlags) writable() error {
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
func (p *program) write(f *ReportFlags, found any, r report.Report) (err error) {
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
