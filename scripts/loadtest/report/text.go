package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/table"
)

// Text writes the run for people, the verdicts last.
func Text(w io.Writer, run *result.Run) error {
	run = finite(run)
	p := &page{}
	p.head(run)
	p.counts(run)
	p.latency(run)
	for _, n := range run.Nodes {
		p.node(n)
	}
	p.verify(run.Verify)
	p.verdicts(run)
	if _, err := w.Write(p.out.Bytes()); err != nil {
		return fmt.Errorf("write text report: %w", err)
	}
	return nil
}

// page is a text in the making. Everything in it has gone through plain.
type page struct{ out bytes.Buffer }

func (p *page) line(format string, args ...any) {
	p.out.WriteString(strings.TrimRight(plain(fmt.Sprintf(format, args...)), " ") + "\n")
}

// table writes figures under a heading.
func (p *page) table(head []string, rows [][]string) {
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
		}
	}
	table.Table{Head: head, Rows: rows}.Text(&p.out, table.Figures) // to memory
}

func (p *page) head(run *result.Run) {
	p.line("%s, %s", heading(run), when(run))
	for _, s := range settings(run) {
		p.line("  %-12s %s", s.Name, s.Value)
	}
}

func (p *page) counts(run *result.Run) {
	all := requests(run)
	p.line("")
	p.line("acknowledged %s, %s/s", count(run.Acknowledged), number(run.PerSecond))
	p.line("refused      %s (%s)%s", count(run.Refusals()), percent(share(run.Refusals(), all)), reasons(run.Refused))
	p.line("failed       %s (%s)", count(run.Failed), percent(share(run.Failed, all)))
	if run.Unsent > 0 {
		p.line("unsent       %s (%s)", count(run.Unsent), percent(share(run.Unsent, all)))
	}
	p.line("connections  %s opened, %s ended early%s", count(run.Opened), count(result.Sum(run.Lost)), reasons(run.Lost))
	if e := run.Events; e != nil {
		p.line("events       %s received, %s missed, %s of no known request", count(e.Received), count(e.Missed), count(e.Unmatched))
	}
	if s := run.Slow; s != nil {
		p.line("slow clients %s (%s): %s kicked, %s reconnects%s",
			count(int64(s.Clients)), s.Behaviour, count(s.Kicked), count(s.Reconnects), reasons(s.Ended))
	}
}

func reasons(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	return ": " + Tally(counts)
}

func (p *page) latency(run *result.Run) {
	var rows [][]string
	for _, l := range latencies(run) {
		rows = append(rows, []string{l.Name, count(l.Count), milli(l.Mean), milli(l.P50), milli(l.P90),
			milli(l.P95), milli(l.P99), milli(l.P999), milli(l.Max)})
	}
	p.line("")
	p.table([]string{"latency, ms", "count", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"}, rows)
}

func (p *page) node(n result.Node) {
	p.line("")
	p.line("gateway %s", n.Metrics)
	if n.Missing != "" {
		p.line("  %s", n.Missing)
	}
	if len(n.Stages) > 0 {
		var rows [][]string
		for _, s := range n.Stages {
			rows = append(rows, []string{s.Name, count(s.Count), milli(s.P50), milli(s.P95), milli(s.P99),
				ofGrowth(s.Growth, s.Growth.FirstThird), ofGrowth(s.Growth, s.Growth.LastThird),
				ofGrowth(s.Growth, s.Growth.SlopePerMinute), direction(s.Growth)})
		}
		p.table([]string{"stage", "count", "p50", "p95", "p99", "first third", "last third", "slope/min", "grows"}, rows)
	}
	if first, last, most := memory(n); most > 0 {
		p.line("memory %s at first, %s at last, at most %s", mebibytes(first), mebibytes(last), mebibytes(most))
	}
	if n.Restarts > 0 {
		p.line("restarts %d", n.Restarts)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Counters)) {
		if strings.HasPrefix(name, "noncegate_") {
			p.line("  %s +%s", name, number(n.Counters[name]))
		}
	}
}

func (p *page) verify(v *result.Verify) {
	if v == nil {
		return
	}
	p.line("")
	p.line("verify %s hand-outs of %s signers, %s repeated requests, %s left out as unanswered: %s violations",
		count(v.Allocations), count(v.Signers), count(v.Repeats), count(v.Unanswered), count(v.ViolationCount))
	for i, violation := range v.Violations {
		if i == 10 {
			p.line("  and %s more", count(max(v.ViolationCount, int64(len(v.Violations)))-10))
			break
		}
		p.line("  %s", violation)
	}
}

func (p *page) verdicts(run *result.Run) {
	p.line("")
	for _, note := range run.Notes {
		p.line("%-7s %s", "note", note)
	}
	for _, v := range run.Verdicts {
		p.line("%-7s %s: %s (want: %s)", Mark(v), v.Name, v.Got, v.Want)
	}
	p.line("%s", outcome(run))
}
