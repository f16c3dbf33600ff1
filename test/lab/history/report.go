package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Rule names an invariant.
type Rule string

// The rules.
const (
	// OneHolder: one attempt of one nonce was told to two requests.
	OneHolder Rule = "one holder"
	// liveHold: a nonce was handed out again before its hold ended and without anybody giving it back.
	liveHold Rule = "two live holds"
	// attemptBack: an attempt went back, or a mark was accepted for an attempt that was not the current one.
	attemptBack Rule = "attempt went back"
	// tokenBack: a fencing token, version, cursor or floor went back, or a lease was acquired without a higher token.
	tokenBack Rule = "token went back"
	// HoldLost: what was acknowledged is not in the store.
	HoldLost Rule = "acknowledged but not stored"
	// consumedStays: a consumed nonce was handed out, released or consumed by another transaction.
	consumedStays Rule = "consumed stays"
	// OneAnswer: one request id was answered in two ways.
	OneAnswer Rule = "one id, one answer"
	// Hole: a nonce below the cursor is nowhere, or a hold is long overdue and was not ended.
	Hole Rule = "hole"
	// RefusedDone: something is stored that nobody was told of and no unknown call
	// explains: a refusal that happened, or one call that happened twice.
	RefusedDone Rule = "refused or done twice"
	// disorder: two calls of one connection for one signer took effect in another order than they were sent in.
	disorder Rule = "disorder"
	// Stuck: a signer is not served although everything is healed.
	Stuck Rule = "does not serve again"
	// Alarm: a gateway said internal, or ended by itself.
	Alarm Rule = "alarm"
	// Different: a log and what its owner remembers are not equal once everything is shipped.
	Different Rule = "Redis and store differ"
	// notLinear: there is no order of a signer's calls in which the answers are right.
	notLinear Rule = "not linearizable"
	// Undecided: porcupine ran out of time; that counts as a failure.
	Undecided Rule = "porcupine undecided"
	// Unnoticed: the store lost what was acknowledged, and no gateway stopped the signer.
	Unnoticed Rule = "loss not noticed"
	// Void: too few calls were acknowledged for the history to say anything.
	Void Rule = "void"
)

// Violation is one breach of a rule.
type Violation struct {
	Rule   Rule   `json:"rule"`
	Signer string `json:"signer,omitempty"`
	Text   string `json:"text"`
}

// String is a line for people.
func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Signer, v.Text) }

// Limits are what Check is told about the run.
type Limits struct {
	// MinAcknowledged is the least number of calls that must have happened.
	MinAcknowledged int
	// MaxOverdue is how long a hold may be overdue in Final.
	MaxOverdue time.Duration
	// ClockSlack is how far two readings of the store's clock may be apart from their order. 0: 5 ms.
	ClockSlack time.Duration
	// ModelTimeout bounds porcupine for each signer. 0: 30 s.
	ModelTimeout time.Duration
	// NoModel leaves porcupine out.
	NoModel bool
}

// Report is the judgement of one history.
type Report struct {
	Acknowledged, Refused, Unknown int
	Reasons                        map[string]int // of refused and unknown calls
	Losses                         int            // of signers with Redis
	Violations                     []Violation

	broken   map[Rule]int // how often
	pictures []picture
}

// OK reports whether there is no violation.
func (r *Report) OK() bool { return len(r.Violations) == 0 }

// Rules lists the rules that were broken, each once.
func (r *Report) Rules() (rules []Rule) {
	for _, v := range r.Violations {
		if !slices.Contains(rules, v.Rule) {
			rules = append(rules, v.Rule)
		}
	}
	return rules
}

// maxPerRule bounds how many violations of one rule are listed.
const maxPerRule = 10

func (r *Report) add(rule Rule, signer, format string, args ...any) {
	if r.broken[rule]++; r.broken[rule] <= maxPerRule {
		r.Violations = append(r.Violations, Violation{rule, signer, fmt.Sprintf(format, args...)})
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	var reasons []string
	for reason, n := range r.Reasons {
		reasons = append(reasons, fmt.Sprintf("%s %d", reason, n))
	}
	slices.Sort(reasons)
	fmt.Fprintf(w, "%d acknowledged, %d refused, %d unknown, %d losses; %s\n", r.Acknowledged, r.Refused, r.Unknown, r.Losses, strings.Join(reasons, ", "))
	for _, v := range r.Violations {
		fmt.Fprintln(w, "  VIOLATION", v)
	}
}

// Check judges a history.
func Check(h *History, limits Limits) *Report {
	limits.ClockSlack = cmp.Or(limits.ClockSlack, 5*time.Millisecond)
	limits.ModelTimeout = cmp.Or(limits.ModelTimeout, 30*time.Second)
	r := &Report{Reasons: make(map[string]int), broken: make(map[Rule]int), Losses: len(h.Losses)}
	signers := index(h, r, limits)
	if r.Acknowledged < limits.MinAcknowledged {
		r.add(Void, "", "%d calls were acknowledged, at least %d are needed", r.Acknowledged, limits.MinAcknowledged)
	}
	for _, s := range signers {
		s.checkSetbacks()
		s.checkCalls()
		s.checkOrder()
		s.checkSamples()
		if h.Final != nil {
			s.checkStored()
		}
		s.checkLosses()
		if !limits.NoModel {
			s.checkModel()
		}
	}
	return r
}
