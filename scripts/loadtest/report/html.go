package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/table"
)

//go:embed page.html.tmpl
var pageSource string

// pageTemplate never changes, and may be executed by many at a time.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"count": count, "number": number, "milli": milli, "percent": percent, "mebibytes": mebibytes,
	"direction": direction, "ofGrowth": ofGrowth, "mark": verdictClass, "sign": verdictSign,
}).Parse(pageSource))

type pageView struct {
	Title    string
	Summary  *Summary        // nil for one run
	Compared *comparisonView // nil for one run
	Runs     []runView
}

// HTML writes the run as one page that stands alone: no network, no script,
// legible in light and dark and on a phone.
func HTML(w io.Writer, run *result.Run) error {
	v, err := viewRun(finite(run))
	if err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return writePage(w, pageView{Title: "Noncegate load test", Runs: []runView{v}})
}

// Summary is what came of several runs together.
type Summary struct {
	Outcome  string // in a word or a few
	Judged   bool   // there was a criterion for all of them together
	Failed   bool   // a criterion was missed, or a run could not be made
	Verdicts []result.Verdict
	Tables   []table.Table
}

// Comparison writes several runs of the same kind as one page like that of HTML:
// the summary first, then side by side, with the others as multiples of the
// first, and then each by itself. Without runs it is an error.
func Comparison(w io.Writer, title string, summary Summary, runs []*result.Run) error {
	if len(runs) == 0 {
		return fmt.Errorf("write HTML report: no run to compare")
	}
	clean := make([]*result.Run, len(runs))
	page := pageView{Title: title, Summary: &summary}
	for i, run := range runs {
		clean[i] = finite(run)
		v, err := viewRun(clean[i])
		if err != nil {
			return fmt.Errorf("write HTML report: %w", err)
		}
		page.Runs = append(page.Runs, v)
	}
	compared, err := compare(clean)
	if err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	page.Compared = compared
	return writePage(w, page)
}

// writePage writes nothing where the page cannot be made.
func writePage(w io.Writer, page pageView) error {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, page); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}

func verdictClass(v result.Verdict) string { return strings.ToLower(Mark(v)) }

// verdictSign says by sign and word how a verdict ended, for those who do not
// see colours.
func verdictSign(v result.Verdict) string {
	switch {
	case !v.Passed:
		return "✗ FAIL"
	case v.Unknown:
		return "? unknown"
	}
	return "✓ pass"
}
