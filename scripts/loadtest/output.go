package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
)

// outputs are where a result goes. Files are opened before the load begins, so
// that a wrong path is told at once and not after an hour; what they had stays
// until there is a result.
type outputs struct {
	stdout     io.Writer
	text       bool // to stdout
	json, html *reportFile
	jsonOut    io.Writer // nil: nowhere
}

// reportFile is a file that keeps what it had until something is written.
type reportFile struct {
	*os.File
	begun bool
}

// Write implements io.Writer.
func (f *reportFile) Write(p []byte) (int, error) {
	if !f.begun {
		if err := f.Truncate(0); err != nil {
			return 0, err
		}
		f.begun = true
	}
	return f.File.Write(p)
}

// open opens the files that the flags name. The caller must close them.
func (f *reportFlags) open(p *program) (*outputs, error) {
	o := &outputs{stdout: p.stdout, text: f.JSON != "-"}
	for _, file := range []struct {
		flag, path string
		to         **reportFile
	}{{"--json", f.JSON, &o.json}, {"--html", f.HTML, &o.html}} {
		if file.path == "" || file.path == "-" {
			continue
		}
		opened, err := os.OpenFile(file.path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			o.close()
			return nil, &usageError{fmt.Errorf("%s cannot be written: %w", file.flag, err)}
		}
		*file.to = &reportFile{File: opened}
	}
	switch {
	case f.JSON == "-":
		o.jsonOut = p.stdout
	case o.json != nil:
		o.jsonOut = o.json
	}
	return o, nil
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

// write writes a result in all forms that were asked for, and closes the files.
func (o *outputs) write(f forms) error {
	var errs []error
	if o.text {
		errs = append(errs, f.text(o.stdout))
	}
	if o.jsonOut != nil {
		errs = append(errs, f.json(o.jsonOut))
	}
	if o.html != nil {
		errs = append(errs, f.html(o.html))
	}
	if err := errors.Join(append(errs, o.close())...); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// writeJSON writes a value as JSON for machines and people.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// close closes the files; it may be called twice.
func (o *outputs) close() error {
	var errs []error
	for _, file := range []**reportFile{&o.json, &o.html} {
		if *file != nil {
			errs = append(errs, (*file).Close())
			*file = nil
		}
	}
	return errors.Join(errs...)
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

// end clears the line.
func (l *progressLine) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.width > 0 {
		fmt.Fprintf(l.out, "\r%*s\r", l.width, "")
		l.width = 0
	}
}
