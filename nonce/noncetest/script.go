// Package noncetest has the rules of an allocation as scripts, and what their lines mean.
// Every way of running ops answers them the same.
package noncetest

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
)

// Signer is the signer of lines that name none.
const Signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

// MaxHolds is the bound on open holds that the rules are told with.
const MaxHolds = 5

//go:embed rules.txt
var rules string

// Rule is a sentence about allocations, and the conversation that shows it.
type Rule struct{ Name, Script string }

// Rules are all of them.
func Rules() []Rule { return Scripts(rules) }

// Scripts takes a text apart. Each script has a line "== Name" before it; lines that begin with # are
// for its readers.
func Scripts(text string) (all []Rule) {
	for _, part := range strings.Split("\n"+text, "\n== ")[1:] {
		name, script, _ := strings.Cut(part, "\n")
		all = append(all, Rule{name, script})
	}
	return all
}

// Lines takes a script apart: what is asked, and what must be answered.
func Lines(script string) (ops, want []string) {
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			op, result, _ := strings.Cut(line, " -> ")
			ops, want = append(ops, strings.TrimSpace(op)), append(want, strings.TrimSpace(result))
		}
	}
	return ops, want
}

// Op is a request of a script, with the result that it came to.
type Op struct {
	nonce.Request
	nonce.Result
}

// Requests are those of some ops.
func Requests(ops []*Op) []*nonce.Request {
	all := make([]*nonce.Request, len(ops))
	for i, op := range ops {
		all[i] = &op.Request
	}
	return all
}

// Parse makes the op of a line such as
//
//	allocate count=2 id=a hold=5s signer=x
//	allocate known id=a
//	allocate by=7
//	used 3#1 hash=7
//	used 3#1 hash=7 by=8 any
//	used 3#1 hash=0
//	signed 3#1 hash=7
//	send 3 hash=7 take
//	send 3 hash=8 over=7
//	extend 3#1 hold=5s
//	repair
//	repair 3
//	release 3#1 reason=why
//	release 3#1 unsent
//	release 3#1 refused hash=7
//	release 3#1 keep hash=7
//	floor 10
//	status
//	list
func Parse(t testing.TB, line string) *Op {
	t.Helper()
	words := strings.Fields(line)
	op, bare := &Op{Request: nonce.Request{Signer: Signer}}, true // the first word after the verb may be a number
	scan := func(s, format string, args ...any) {
		if _, err := fmt.Sscanf(s, format, args...); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	switch words[0] {
	case "allocate":
		op.Kind, op.Count, bare = nonce.KindAllocate, 1, false
	case "used":
		op.Kind, op.TxHash[31] = nonce.KindMarkUsed, 1
		scan(words[1], "%d#%d", &op.Nonce, &op.Request.Attempt)
	case "release":
		op.Kind = nonce.KindMarkRecyclable
		scan(words[1], "%d#%d", &op.Nonce, &op.Request.Attempt)
	case "extend":
		op.Kind = nonce.KindExtend
		scan(words[1], "%d#%d", &op.Nonce, &op.Request.Attempt)
	case "signed":
		op.Kind, op.TxHash[31] = nonce.KindMarkSigned, 1
		scan(words[1], "%d#%d", &op.Nonce, &op.Request.Attempt)
	case "send":
		op.Kind, op.Forwarded, op.TxHash[31] = nonce.KindMarkSigned, true, 1
		scan(words[1], "%d", &op.Nonce)
	case "repair":
		op.Kind, op.Nonce = nonce.KindRepair, -1
		if len(words) > 1 && !strings.Contains(words[1], "=") {
			scan(words[1], "%d", &op.Nonce)
		}
	case "floor":
		op.Kind = nonce.KindSetFloor
		scan(words[1], "%d", &op.Request.Floor)
	case "status":
		op.Kind, bare = nonce.KindStatus, false
	case "list":
		op.Kind, op.List.Limit, bare = nonce.KindList, 1000, false
	default:
		t.Fatalf("what is %q?", line)
	}
	for i, w := range words[1:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "count":
			scan(value, "%d", &op.Count)
		case "id":
			op.RequestID = value
		case "hold":
			op.Hold, _ = time.ParseDuration(value)
		case "hash":
			scan(value, "%d", &op.TxHash[31])
		case "known":
			op.OnlyKnown = true
		case "by":
			scan(value, "%d", &op.Principal)
		case "any":
			op.MarkAny = true
		case "first":
			op.RecordFirst = true
		case "unsent":
			op.Unsent = true
		case "dry":
			op.DryRun = true
		case "refused":
			op.Forwarded = true
		case "keep":
			op.Forwarded, op.Keep, op.Reason = true, true, nonce.ReasonRefused
		case "over":
			scan(value, "%d", &op.Over[31])
		case "take":
			op.Take = true
		case "most":
			scan(value, "%d", &op.MaxOpen)
		case "reason":
			op.Reason = value
		case "signer":
			op.Signer = value
		default:
			if i > 0 || !bare {
				t.Fatalf("%q: what is %q?", line, w)
			}
		}
	}
	return op
}

// Result is what became of an op, in words.
func Result(op *Op) string {
	if op.Err != nil {
		return Refusal(op.Err)
	}
	var words []string
	switch op.Kind {
	case nonce.KindAllocate:
		for i, n := range op.Nonces {
			words = append(words, fmt.Sprintf("%d#%d", n, op.Attempts[i]))
			words = append(words, earlier(op, i)...)
		}
	case nonce.KindRepair:
		words = append(words, fmt.Sprintf("%d#%d", op.Nonces[0], op.Attempts[0]))
		if op.Before != nil && op.RequestID == "" {
			words = append(words, fmt.Sprintf("was #%d %d/%s", op.Before.Attempt, op.Before.Status, op.Before.Reason))
		}
		for i := range op.Hashes.Len() {
			words = append(words, fmt.Sprint(op.Hashes.At(i)[31]))
		}
		words = append(words, earlier(op, 0)...)
	case nonce.KindMarkSigned:
		words = append(words, fmt.Sprintf("%v #%d", op.Status, op.Result.Attempt))
		for i := range op.Hashes.Len() {
			words = append(words, fmt.Sprint(op.Hashes.At(i)[31]))
		}
		words = append(words, earlier(op, 0)...)
	case nonce.KindSetFloor:
		return fmt.Sprintf("floor %d next %d", op.Result.Floor, op.Next)
	case nonce.KindStatus:
		s := op.Summary
		return fmt.Sprintf("next %d floor %d held %d released %d consumed %d", s.Next, s.Floor, s.Held, s.Released, s.Consumed)
	case nonce.KindList:
		for _, r := range op.Page.Rows {
			words = append(words, Row(r))
		}
	default:
		return op.Status.String()
	}
	return strings.Join(words, " ")
}

// earlier is what an op is told of the hold before that of its i-th nonce, in words.
func earlier(op *Op, i int) []string {
	if i >= len(op.Earlier) || op.Earlier[i] == nil {
		return nil
	}
	was := op.Earlier[i]
	words := []string{"reissued", fmt.Sprintf("#%d", was.Attempt), was.Reason}
	if was.TxHash != (nonce.TxHash{}) {
		words = append(words, fmt.Sprint(was.TxHash[31]))
	}
	return words
}

// Row is an allocation in words, such as 3#2=CONSUMED/7.
func Row(r nonce.Row) string {
	s := fmt.Sprintf("%d#%d=%v", r.Nonce, r.Attempt, r.Status)
	if r.TxHash != (nonce.TxHash{}) {
		s += fmt.Sprintf("/%d", r.TxHash[31])
	}
	for i := range r.Replaced.Len() {
		s += fmt.Sprintf(",%d", r.Replaced.At(i)[31])
	}
	if r.Reason != "" {
		s += "/" + r.Reason
	}
	return s
}

func Refusal(err error) string {
	for word, sentinel := range map[string]error{
		"busy": nonce.ErrBusy, "fenced": nonce.ErrFenced, "not_found": nonce.ErrNotFound,
		"draining": nonce.ErrDraining, "new": nonce.ErrNewSigner, "no chain": nonce.ErrNoChain, "gone": nonce.ErrGone, "not_holder": nonce.ErrNotHolder, "internal": nonce.ErrInternal,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	if e, ok := errors.AsType[*nonce.UnavailableError](err); ok {
		if e.Outcome == nonce.Unknown {
			return "unknown"
		}
		return "none"
	}
	if e, ok := errors.AsType[*nonce.NotOwnerError](err); ok {
		return "not_owner " + e.Node + " " + e.URL
	}
	if e, ok := errors.AsType[*nonce.HoldLimitError](err); ok {
		if e.OfPrincipal {
			return fmt.Sprintf("hold_limit %d of principal", e.Limit)
		}
		if e.Window {
			return fmt.Sprintf("window %d lowest %d", e.Limit, e.Lowest)
		}
		return fmt.Sprintf("hold_limit %d", e.Limit)
	}
	e, ok := errors.AsType[*nonce.ConflictError](err)
	if !ok {
		return err.Error()
	}
	if e.Nonce >= 0 {
		r := nonce.Row{Nonce: e.Nonce, Attempt: e.Attempt, Status: e.Status, TxHash: e.TxHash}
		if e.Unknown {
			r.Reason = nonce.ReasonUnknown
		}
		return "conflict " + Row(r)
	}
	words := []string{"conflict"}
	for _, h := range e.Holds {
		words = append(words, fmt.Sprintf("%d#%d=%v", h.Nonce, h.Attempt, h.Status))
	}
	return strings.Join(words, " ")
}
