//go:build unix

package sqlite

import (
	"cmp"
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

// callsBy is what clients knew at a moment: calls that were not answered by then
// are of unknown outcome, and those not begun are left out.
func (m moment) callsBy(clients []*client) []history.Call {
	var known []history.Call
	for _, c := range clients {
		for i := range c.calls {
			switch rec := &c.calls[i]; {
			case rec.round < m.round, rec.round == m.round && rec.to >= 0 && rec.to <= m.at:
				known = append(known, rec.Call)
			case rec.round == m.round && rec.from <= m.at:
				known = append(known, unanswered(rec.Call))
			}
		}
	}
	return known
}

// unanswered is a call without what came of it.
func unanswered(c history.Call) history.Call {
	c.Outcome, c.Reason, c.Detail = history.Unknown, "crash", ""
	c.Nonces, c.Token, c.HeldUntil, c.State, c.FloorNow, c.Next, c.Version, c.Seen, c.Holds = nil, 0, 0, "", 0, 0, 0, nil, nil
	return c
}

// judgeImage compares a crash image with what was acknowledged by then. Nobody has
// swept it, so holds may be overdue by any time.
func (r *run) judgeImage(ctx context.Context, m moment, image map[string][]byte, what string) error {
	dir := filepath.Join(r.dir, "image")
	if err := save(image, dir); err != nil {
		return fmt.Errorf("save an image: %w", err)
	}
	r.result.Images++
	before := len(r.result.Violations)
	found, err := readImage(ctx, dir)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.violation(history.Violation{Rule: history.HoldLost, Text: fmt.Sprintf("the file cannot be read: %v", err)}, what)
	} else {
		r.judge(&history.History{GraceMs: grace.Milliseconds(), Calls: m.callsBy(r.clients), Final: &found.Final}, found, what, history.Limits{NoModel: true, MaxOverdue: 1000 * time.Hour})
	}
	if len(r.result.Violations) > before {
		return save(image, filepath.Join(r.dir, fmt.Sprintf("bad-image-%d", r.result.Images)))
	}
	return nil
}

// judge adds the violations of a history and of the request ids that are stored.
func (r *run) judge(h *history.History, found *stored, what string, limits history.Limits) *history.Report {
	report := history.Check(h, limits)
	for _, v := range report.Violations {
		r.violation(v, what)
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Kind != history.Allocate || c.Outcome != history.Happened || c.RequestID == "" {
			continue
		}
		got := slices.SortedFunc(slices.Values(found.requests[requestKey{c.Signer, c.RequestID}]), func(a, b history.Given) int {
			return cmp.Compare(a.Nonce, b.Nonce)
		})
		if !slices.Equal(got, c.Nonces) {
			r.violation(history.Violation{Rule: history.OneAnswer, Signer: c.Signer,
				Text: fmt.Sprintf("request %s was given %v, and %v is remembered", c.RequestID, c.Nonces, got)}, what)
		}
	}
	return report
}

// maxViolations bounds what is kept of one history.
const maxViolations = 20

func (r *run) violation(v history.Violation, what string) {
	if len(r.result.Violations) < maxViolations {
		r.result.Violations = append(r.result.Violations, violation{v, what})
	}
}

// usual are the reasons that a gateway may refuse the clients for.
var usual = []string{"conflict", "unavailable", "draining"}

// word is a reason without the stage or the outcome behind it.
func word(reason string) string {
	first, _, _ := strings.Cut(reason, " ")
	return first
}

// judgeAnswers looks for answers that no fault excuses.
func (r *run) judgeAnswers(n int) {
	for _, c := range r.clients {
		for i := range c.calls {
			rec := &c.calls[i]
			if rec.round == n && rec.to >= 0 && rec.Outcome != history.Happened && !slices.Contains(usual, word(rec.Reason)) {
				r.violation(history.Violation{Rule: history.Alarm, Signer: rec.Signer, Text: rec.Call.String() + ": " + rec.Detail}, fmt.Sprintf("round %d", n))
			}
		}
	}
}
