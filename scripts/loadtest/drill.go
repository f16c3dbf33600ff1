package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/verify"
)

// single is what a command does that makes one run.
type single struct {
	files    *reportFlags
	criteria report.Criteria
	measure  func() (*result.Run, error)        // a run may come with an error
	verdicts func(*result.Run) []result.Verdict // beside the criteria; nil: none
	forms    func(*result.Run) forms            // nil: those of any run
}

// single makes the run, judges it, reports it, and says how it ends the program.
func (p *program) single(ctx context.Context, d single) error {
	out, err := d.files.open(p)
	if err != nil {
		return err
	}
	run, err := d.measure()
	if run == nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	report.Judge(run, d.criteria)
	if d.verdicts != nil {
		run.Verdicts = append(run.Verdicts, d.verdicts(run)...)
	}
	written := formsOf(run)
	if d.forms != nil {
		written = d.forms(run)
	}
	if failed := out.write(written); failed != nil {
		return errors.Join(err, failed)
	}
	return outcome(run, err)
}

// outcome is how a run that was reported ends the program.
func outcome(run *result.Run, err error) error {
	switch {
	case run.Interrupted:
		return errInterrupted
	case err != nil:
		return err
	case !run.Passed():
		return errFailed
	}
	return nil
}

// contest is what a command does that measures two sides in alternation.
type contest struct {
	title    string
	files    *reportFlags
	criteria report.Criteria // of each run
	sides    [2]string
	rounds   int
	order    rounds.Order
	signers  traffic.Signers // of the first run; each run has further ones
	measure  func(side int, name string, signers traffic.Signers) (*result.Run, error)
	missed   map[string]int64 // see comparison; filled in by measure
	judge    func(*comparison)
}

// contest makes all runs until one is cut short, and ends as compared does.
func (p *program) contest(ctx context.Context, c contest) error {
	out, err := c.files.open(p)
	if err != nil {
		return err
	}
	both := &comparison{Title: c.title, Missed: c.missed}
	for round, side := range rounds.Alternate(c.rounds, len(c.sides), c.order) {
		signers := c.signers
		signers.Base += int64(len(both.Runs)) * int64(signers.Count)
		name := fmt.Sprintf("%s, round %d", c.sides[side], round+1)
		run, err := c.measure(side, name, signers)
		if cutShort := both.add(run, err, name, c.sides[side], c.criteria); cutShort {
			return p.compared(ctx, both, out, err, c.judge)
		}
	}
	return p.compared(ctx, both, out, nil, c.judge)
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
	line := p.progress()
	run, err := measure(hooks{begin: observer.Begin, end: func() { observer.End() }, second: line.second})
	line.end()
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

// check finishes the verification of a run that is over. A run that was
// interrupted is judged by its answers alone.
func (p *program) check(ctx context.Context, recorder *verify.Recorder, run *result.Run, urls []string, in access.Access) (*result.Verify, error) {
	if run.Interrupted {
		return recorder.Result(), nil
	}
	line := p.progress()
	defer line.end()
	v, err := recorder.Check(ctx, urls, in, line.signers)
	if ctx.Err() != nil {
		run.Interrupted, err = true, nil
	}
	if err != nil {
		v.Incomplete = err.Error()
		err = fmt.Errorf("the run is over, but could not be verified: %w", err)
	}
	return v, err
}

// outputs are where a result goes. That its files can be written is known before the load
// begins, so that a wrong path is told at once and not after an hour; what they had stays
// until there is a result.
type outputs struct {
	stdout     io.Writer // for the text
	json, html string    // files; "": none, and - standard output instead of the text
}

// open looks whether the files that the flags name can be written.
func (f *reportFlags) open(p *program) (*outputs, error) {
	for _, file := range []struct{ flag, path string }{{"--json", f.JSON}, {"--html", f.HTML}} {
		if file.path == "" || file.path == "-" {
			continue
		}
		opened, err := os.OpenFile(file.path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			err = opened.Close()
		}
		if err != nil {
			return nil, &usageError{fmt.Errorf("%s cannot be written: %w", file.flag, err)}
		}
	}
	return &outputs{stdout: p.stdout, json: f.JSON, html: f.HTML}, nil
}

// forms are the ways to write a result.
type forms struct{ text, json, html func(io.Writer) error }

// formsOf are those of a run.
func formsOf(run *result.Run) forms {
	return forms{
		text: func(w io.Writer) error { return report.Text(w, run) },
		json: func(w io.Writer) error { return report.JSON(w, run) },
		html: func(w io.Writer) error { return report.HTML(w, run) },
	}
}

// write writes a result in all forms that were asked for.
func (o *outputs) write(f forms) error {
	var errs []error
	switch o.json {
	case "-":
		errs = append(errs, f.json(o.stdout))
	case "":
		errs = append(errs, f.text(o.stdout))
	default:
		errs = append(errs, f.text(o.stdout), writeTo(o.json, f.json))
	}
	if o.html != "" {
		errs = append(errs, writeTo(o.html, f.html))
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

// progressLine is one line on a terminal that is written over and over. Its
// methods may be called by any goroutine.
type progressLine struct {
	out io.Writer // nil: nobody looks

	mu    sync.Mutex // guards what follows, and is held to write
	width int        // of what is shown
	last  time.Time  // of signers
}

// progress begins a line of progress, which says nothing where nobody looks.
func (p *program) progress() *progressLine {
	if !p.terminal {
		return new(progressLine)
	}
	return &progressLine{out: p.stderr}
}

func (l *progressLine) second(s result.Second) {
	l.show("%4.0f s  %8d/s  p50 %.2f  p99 %.2f ms  refused %d  failed %d", s.At+s.Seconds, s.Acknowledged, s.P50, s.P99, s.Refused, s.Failed)
}

// signers shows how far a verification is, not more often than can be read.
func (l *progressLine) signers(done, all int) {
	l.mu.Lock()
	late := time.Since(l.last) >= 100*time.Millisecond
	if late {
		l.last = time.Now()
	}
	l.mu.Unlock()
	if late || done == all {
		l.show("verified %d of %d signers", done, all)
	}
}

func (l *progressLine) show(format string, args ...any) {
	if l.out == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(l.out, "\r%-*s", l.width, text)
	l.width = max(l.width, len(text))
}

func (l *progressLine) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.width > 0 {
		fmt.Fprintf(l.out, "\r%*s\r", l.width, "")
		l.width = 0
	}
}
