package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Moments beyond every call: the read of what is stored, and the end of calls of which nobody knows whether they ever took effect.
// The latter is later, so that such a call may also come after everything that could have seen it.
const (
	finalCall  = math.MaxInt64 - 3
	finalEnd   = math.MaxInt64 - 2
	unknownEnd = math.MaxInt64 - 1
)

// step is one operation of the model. Exactly one of its pointers is set.
type step struct {
	call   *Call
	orphan *Given        // a hand-out that is stored and that nobody was told of
	stored *StoredSigner // the read of what is stored
	must   bool          // a call of unknown outcome whose effect is stored
	given  time.Duration // of an allocate that happened: when it can have handed out at first
	// endedBy is, of an allocate that happened, endedBy of a hold that began at a moment.
	endedBy func(given time.Duration) int64
}

// checkModel asks porcupine for an order of the signer's calls.
func (s *signer) checkModel() {
	if len(s.losses) > 0 || s.lostSome {
		return // what of it holds is in loss.go, and in setback.go
	}
	ops := s.operations()
	m := model(s.limits.ClockSlack.Milliseconds() - s.GraceMs)
	verdict, info := porcupine.CheckOperationsVerbose(m, ops, s.limits.ModelTimeout)
	switch verdict {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		s.wrong(Undecided, "no verdict on %d calls within %v", len(ops), s.limits.ModelTimeout)
	case porcupine.Illegal:
		s.wrong(notLinear, "%d calls have no order that explains the answers; the longest that does breaks off %s", len(ops), stuck(ops, &info))
	}
	s.pictures = append(s.pictures, picture{s.name, m, info})
}

// stuck describes the calls that were next when the longest order broke off.
func stuck(ops []porcupine.Operation, info *porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	done := make(map[*step]bool)
	for _, op := range longest {
		done[op.Input.(*step)] = true
	}
	left := slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool { return done[op.Input.(*step)] })
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	var lines []string
	for _, op := range left[:min(3, len(left))] {
		lines = append(lines, describe(op.Input, nil))
	}
	return fmt.Sprintf("after %d: %s", len(longest), strings.Join(lines, "; "))
}

// operations are the calls that the model judges. Refusals that say nothing about
// a nonce are left out: that nothing happened is what their absence says.
func (s *signer) operations() []porcupine.Operation {
	o := &operations{signer: s, known: s.gather(), stored: s.txHashes(), doubt: never}
	for _, c := range s.calls {
		switch {
		case c.Kind == Status && s.RowsBehind: // checkBehind says what holds of it
		case c.Outcome == Happened, c.Outcome == Refused && tellsOfNonce(c):
			o.told(c)
		case c.Outcome == Unknown:
			o.unknown(c)
		}
	}
	for _, g := range s.orphans() {
		if o.doubt < never { // without a doubt checkNobodys says so
			from, to := o.known.handedOut(g)
			begun, end := within(o.doubt, from, to)
			o.add(&step{orphan: &g}, begun, end)
		}
	}
	if s.stored != nil {
		o.add(&step{stored: s.stored}, finalCall, finalEnd)
	}
	return o.ops
}

// operations collects what porcupine is given.
type operations struct {
	*signer
	known  *evidence
	stored map[string]bool // transaction hashes whose mark was not added yet
	doubt  time.Duration   // when the first allocate of unknown outcome began
	ops    []porcupine.Operation
}

func (o *operations) add(st *step, from, to int64) {
	o.ops = append(o.ops, porcupine.Operation{ClientId: len(o.ops), Input: st, Call: from, Return: to})
}

func (o *operations) told(c *Call) {
	begun := o.mayHaveBegun(c)
	if begun < c.Start {
		from, _ := o.known.handedOut(c.Nonces[0])
		begun = min(max(begun, from), c.Start)
	}
	st := &step{call: c}
	if c.Kind == Allocate && c.Outcome == Happened {
		st.given, st.endedBy = o.mayHaveBegun(c), func(given time.Duration) int64 { return o.endedBy(given, c) }
	}
	o.add(st, int64(begun), int64(c.End))
}

// unknown adds a call of which nobody knows whether it happened.
func (o *operations) unknown(c *Call) {
	switch {
	case c.Kind == Status:
	case c.Kind == Allocate:
		o.doubt = min(o.doubt, c.Start)
	case c.Kind == MarkUsed && o.signer.stored != nil:
		// A transaction hash that is stored stays, so the store tells. It takes effect at its beginning or later, and only once.
		if o.stored[c.TxHash] && !o.toldUsed(c) {
			from, to := o.known.used(c)
			begun, end := within(c.Start, from, to)
			o.add(&step{call: c, must: true}, begun, end)
			o.stored[c.TxHash] = false
		}
	case c.Kind == MarkRecyclable && o.signer.stored != nil:
		if !o.storedHeld(c) {
			from, to := o.known.freed(c)
			begun, end := within(c.Start, from, to)
			o.add(&step{call: c}, begun, end)
		}
	default:
		o.add(&step{call: c}, int64(c.Start), unknownEnd)
	}
}

// storedHeld reports whether the hold that a release was about is stored, so that the release had no effect.
func (s *signer) storedHeld(c *Call) bool {
	return slices.ContainsFunc(s.stored.Rows, func(r Row) bool {
		return r.Nonce == c.Nonce && r.Attempt == c.Attempt && r.Status == Held
	})
}

// mayHaveBegun is the earliest moment at which what c was told may have come about. The answer to a request id may be that of an
// earlier call of it, of which nobody knew whether it happened.
func (s *signer) mayHaveBegun(c *Call) time.Duration {
	begun := c.Start
	for _, o := range s.requests[c.RequestID] { // in order of Start
		switch {
		case o.Outcome == Unknown:
			begun = min(begun, o.Start)
		case o.Outcome == Happened && o != c && o.Start < c.Start:
			return c.Start // that one was told first, or at the same time
		}
	}
	return begun
}

// toldUsed reports whether a call was told that it did what c may have done.
func (s *signer) toldUsed(c *Call) bool {
	return slices.ContainsFunc(s.nonces[c.Nonce].used, func(o *Call) bool { return o.Outcome == Happened && o.TxHash == c.TxHash && o.Start <= c.Start })
}

func (s *signer) txHashes() map[string]bool {
	out := make(map[string]bool)
	if s.stored != nil {
		for _, row := range s.stored.Rows {
			for _, tx := range row.hashes() {
				out[tx] = true
			}
		}
	}
	return out
}

// tellsOfNonce reports whether a refusal says in what state a nonce is.
func tellsOfNonce(c *Call) bool {
	return (c.Kind == MarkUsed || c.Kind == MarkRecyclable) && (c.Seen != nil || c.Reason == "not_found")
}

// model is the state machine of one signer for porcupine.
func model(slackMs int64) porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return &machine{slack: slackMs} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(*machine).step(input.(*step))
		},
		Equal:             func(a, b any) bool { return a.(*machine).equal(b.(*machine)) },
		Hash:              func(state any) uint64 { return state.(*machine).hash(seed) },
		DescribeOperation: describe,
		DescribeState:     func(state any) string { return state.(*machine).String() },
	}
}

func describe(input, _ any) string {
	st := input.(*step)
	switch {
	case st.orphan != nil:
		return fmt.Sprintf("somebody got %d/%d", st.orphan.Nonce, st.orphan.Attempt)
	case st.stored != nil:
		return fmt.Sprintf("stored: next %d, floor %d, %d rows", st.stored.Next, st.stored.Floor, len(st.stored.Rows))
	}
	return st.call.String()
}

// String is a line for people.
func (c *Call) String() string {
	text, _ := json.Marshal(c) // it has nothing that cannot be
	return fmt.Sprintf("[%v…%v at %s] %s", c.Start, c.End, c.Node, text)
}

// picture is what porcupine can draw of a signer.
type picture struct {
	signer string
	model  porcupine.Model
	info   porcupine.LinearizationInfo
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// SavePictures writes porcupine's HTML of each signer that has no explanation into a directory.
func (r *Report) SavePictures(dir string) (err error) {
	for _, p := range r.pictures {
		file := filepath.Join(dir, "porcupine-"+notInNames.ReplaceAllString(p.signer, "-")+".html")
		err = errors.Join(err, porcupine.VisualizePath(p.model, p.info, file), os.Chmod(file, 0o644))
	}
	return err
}
