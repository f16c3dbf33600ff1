package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// single makes a run, which may come with an error and with verdicts of its own, judges it,
// reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, files *reportFlags, criteria report.Criteria, measure func() (*result.Run, []result.Verdict, error)) error {
	if err := files.writable(); err != nil {
		return err
	}
	run, verdicts, err := measure()
	if run == nil {
		return interruptedOr(ctx, err)
	}
	report.Judge(run, criteria, verdicts...)
	if written := p.write(files, run); written != nil {
		return errors.Join(err, written)
	}
	switch {
	case run.Interrupted:
		return errInterrupted
	case err == nil && !run.Passed:
		return errFailed
	}
	return err
}

// hooks are what a load calls when its measured time begins and ends, and after
// each second of it.
type hooks struct {
	begin, end func()
	second     func(result.Second)
}

// observed makes a load while the pages of its gateways are read, with a line
// of progress where somebody looks. A result may come with an error.
func (p *program) observed(ctx context.Context, pages observe.Pages, measure func(hooks) (*result.Run, error)) (*result.Run, error) {
	observer := pages.Start(ctx)
	run, err := measure(hooks{begin: observer.Begin, end: func() { observer.End() }, second: func(s result.Second) {
		p.say("%4.0f s  %8d/s  p50 %.2f  p99 %.2f ms  refused %d  failed %d", s.At+s.Seconds, s.Acknowledged, s.P50, s.P99, s.Refused, s.Failed)
	}})
	nodes := observer.End() // the same once more; of a load that was not measured, why there is nothing
	if run != nil {
		run.Nodes = nodes
	}
	return run, err
}

// loaded makes a load observed. What it is to call itself when the measured time
// begins is called, too.
func (p *program) loaded(ctx context.Context, pages observe.Pages, load traffic.Load) (*result.Run, error) {
	begin := load.BeginMeasure
	return p.observed(ctx, pages, func(h hooks) (*result.Run, error) {
		load.BeginMeasure, load.EndMeasure, load.Progress = h.begin, h.end, h.second
		if begin != nil {
			load.BeginMeasure = func() {
				h.begin()
				begin()
			}
		}
		return load.Run(ctx)
	})
}

// writable looks whether the files that the flags name can be written, so that a wrong path is
// told at once and not after an hour; what they had stays until there is a result.
func (f *reportFlags) writable() error {
	for flag, path := range map[string]string{"--json": f.JSON, "--html": f.HTML} {
		if path == "" || path == "-" {
			continue
		}
		opened, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			err = opened.Close()
		}
		if err != nil {
			return &usageError{fmt.Errorf("%s cannot be written: %w", flag, err)}
		}
	}
	return nil
}

// write writes a run or a comparison in all forms that the flags ask for.
func (p *program) write(f *reportFlags, of any) error {
	text := func(w io.Writer) error { return report.ComparisonText(w, of.(*result.Comparison)) }
	page := func(w io.Writer) error { return report.ComparisonHTML(w, of.(*result.Comparison)) }
	if run, ok := of.(*result.Run); ok {
		text = func(w io.Writer) error { return report.Text(w, run) }
		page = func(w io.Writer) error { return report.HTML(w, run) }
	}
	var errs []error
	switch f.JSON {
	case "-":
		errs = append(errs, writeJSON(p.stdout, of))
	case "":
		errs = append(errs, text(p.stdout))
	default:
		errs = append(errs, text(p.stdout), writeTo(f.JSON, func(w io.Writer) error { return writeJSON(w, of) }))
	}
	if f.HTML != "" {
		errs = append(errs, writeTo(f.HTML, page))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// writeTo writes a file.
func writeTo(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeJSON writes a value as JSON for machines and people.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// say tells somebody who looks what happens.
func (p *program) say(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.stderr, format+"\n", args...)
	}
}
