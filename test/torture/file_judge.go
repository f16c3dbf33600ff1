//go:build unix

package torture

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noncegate/test/lab/history"
)

// moment is a point in the traces of a history: what a crash may fall on.
type moment struct {
	round int
	at    int64 // length of the trace; everything is in it when forever
}

const forever = int64(1) << 62

// history is what clients knew at a moment: calls that were not answered by then are of unknown
// outcome, and those not begun are left out.
func (r *fileRun) history(m moment, found *history.Final) *history.History {
	h := &history.History{GraceMs: grace.Milliseconds(), Seed: r.Seed, Name: r.Name, Faults: r.res.Faults, Final: found}
	for _, w := range r.workers {
		for i, c := range w.calls {
			switch at := w.spans[i]; {
			case at.round < m.round, at.round == m.round && at.to >= 0 && at.to <= m.at:
				h.Calls = append(h.Calls, c)
			case at.round == m.round && at.from <= m.at:
				h.Calls = append(h.Calls, c.Unanswered("crash"))
			}
		}
	}
	return h
}

// judgeImage compares a crash image with what was acknowledged by then. Nobody has swept it, so
// holds may be overdue by any time.
func (r *fileRun) judgeImage(ctx context.Context, m moment, image map[string][]byte, what string) error {
	dir := filepath.Join(r.dir, "image")
	if err := save(image, dir); err != nil {
		return fmt.Errorf("save an image: %w", err)
	}
	r.images++
	before := len(r.report.Violations)
	found, err := readFile(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		r.wrong(history.HoldLost, "%s: the file cannot be read: %v", what, err)
	default:
		for _, v := range history.Check(r.history(m, found), history.Limits{NoModel: true, MaxOverdue: 1000 * time.Hour}).Violations {
			r.wrong(v.Rule, "%s: %s: %s", what, v.Signer, v.Text)
		}
	}
	if len(r.report.Violations) > before {
		return save(image, filepath.Join(r.dir, fmt.Sprintf("bad-image-%d", r.images)))
	}
	return nil
}

// maxWrong bounds what is kept of one history.
const maxWrong = 20

func (r *fileRun) wrong(rule history.Rule, format string, args ...any) {
	if len(r.report.Violations) < maxWrong {
		r.report.Violations = append(r.report.Violations, history.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
	}
}

// excused are the reasons that a gateway on a file may refuse the clients for.
var excused = []string{"conflict", "not_found", "unavailable", "draining"}

// judgeNode looks for what no fault excuses in the log of a round, and in its answers.
func (r *fileRun) judgeNode(n int) {
	for _, problem := range r.node.found() {
		r.wrong(history.Alarm, "round %d: %s", n, problem)
	}
	for _, w := range r.workers {
		for i := range w.calls {
			c := &w.calls[i]
			word, _, _ := strings.Cut(c.Reason, " ")
			if w.spans[i].round == n && w.spans[i].to >= 0 && c.Outcome != history.Happened && !slices.Contains(excused, word) {
				r.wrong(history.Alarm, "round %d: %v: %s", n, c, c.Detail)
			}
		}
	}
}
