package history

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// bad is a history with one thing wrong, and the rules that must say so. model
// says that porcupine must find it too.
type bad struct {
	name  string
	rule  Rule
	model bool
	make  func(w *world)
	spoil func(h *History)
}

// last finds the last call of a kind.
func last(h *History, k Kind) *Call {
	for i := len(h.Calls) - 1; i >= 0; i-- {
		if h.Calls[i].Kind == k {
			return &h.Calls[i]
		}
	}
	return nil
}

var badHistories = []bad{
	{
		"two clients get one attempt", OneHolder, true,
		func(w *world) { w.allocate(""); w.call(*w.allocate("")) },
		func(h *History) {},
	},
	{
		"a nonce is handed out while it is held", liveHold, true,
		func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate("") },
		func(h *History) {
			h.Calls[1].HeldUntil -= hold + 100
			h.Final.Signers[0].Rows[0].HeldUntil -= hold + 100
		},
	},
	{
		"an attempt goes back", attemptBack, true,
		func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate("") },
		func(h *History) {
			h.Calls[0].Start, h.Calls[0].End = h.Calls[1].End+1, h.Calls[1].End+2
		},
	},
	{
		"a mark of an older attempt is accepted", attemptBack, true,
		func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate(""); w.mark(MarkRecyclable, 0, 2) },
		func(h *History) { last(h, MarkRecyclable).Attempt = 1 },
	},
	{
		"a token goes back", tokenBack, false,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) { h.Calls[0].Token = 2; h.Final.Signers[0].Token = 2 },
	},
	{
		"the status is behind the row", tokenBack, false,
		func(w *world) { w.allocate(""); w.status().Next-- },
		func(h *History) {
			h.RowsBehind = true
			h.Samples = []Sample{{Signer: "s", Version: 1, Next: 1, At: h.Calls[0].End}, {Signer: "s", Version: 1, Next: 1, At: h.Calls[0].End + 1}}
		},
	},
	{
		"the stored cursor goes back for a while", tokenBack, false,
		func(w *world) { w.allocate("") },
		func(h *History) { h.Samples = []Sample{{Signer: "s", Next: 2}, {Signer: "s", Next: 1}} },
	},
	{
		"an acknowledged hold is not stored", HoldLost, true,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) {
			s := &h.Final.Signers[0]
			s.Rows, s.Next, s.Held = s.Rows[:1], 1, 1
		},
	},
	{
		"a signer is not stored at all", HoldLost, false,
		func(w *world) { w.allocate("") },
		func(h *History) { h.Final.Signers = nil },
	},
	{
		"an older attempt is stored", HoldLost, true,
		func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate("") },
		func(h *History) { h.Final.Signers[0].Rows[0].Attempt = 1 },
	},
	{
		"an acknowledged release is not stored", HoldLost, true,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 1) },
		func(h *History) {
			s := &h.Final.Signers[0]
			s.Rows[0].Status, s.Rows[0].HeldUntil, s.Held = Held, h.Calls[0].HeldUntil, 1
		},
	},
	{
		"a consumed nonce is handed out", consumedStays, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.now += 2 * hold; w.allocate("") },
		func(h *History) {
			c := last(h, Allocate)
			c.Nonces = []Given{{0, 2}}
		},
	},
	{
		"a nonce is consumed twice", consumedStays, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.mark(MarkUsed, 0, 2) },
		func(h *History) {
			c := last(h, MarkUsed)
			c.Outcome, c.State, c.Reason, c.Seen = Happened, Consumed, "", nil
		},
	},
	{
		"a replaced transaction is forgotten", consumedStays, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.mark(MarkUsed, 0, 1) },
		func(h *History) { h.Final.Signers[0].Rows[0].Replaced = nil },
	},
	{
		"a transaction is stored that nobody recorded", RefusedDone, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.mark(MarkUsed, 0, 1) },
		func(h *History) {
			h.Final.Signers[0].Rows[0].Replaced = []string{"0xother", h.Final.Signers[0].Rows[0].Replaced[0]}
		},
	},
	{
		"a consumed nonce is released", consumedStays, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.mark(MarkRecyclable, 0, 1) },
		func(h *History) {
			c := last(h, MarkRecyclable)
			c.Outcome, c.State, c.Reason, c.Seen = Happened, Released, "", nil
		},
	},
	{
		"a request id gets two answers", OneAnswer, true,
		func(w *world) { w.allocate("r"); w.allocate("") },
		func(h *History) { h.Calls[1].RequestID = "r" },
	},
	{
		"a conflict tells of other nonces than the answer did", OneAnswer, false,
		func(w *world) { w.allocate("r"); w.mark(MarkUsed, 0, 1) },
		func(h *History) {
			c := *last(h, Allocate)
			c.Start, c.End = h.Calls[1].End+1, h.Calls[1].End+2
			c.Outcome, c.Reason, c.Nonces, c.Holds = Refused, "conflict", nil, []Given{{3, 1}}
			h.Calls = append(h.Calls, c)
		},
	},
	{
		"a request id is known although every call of it was refused", RefusedDone, false,
		func(w *world) { w.allocate("") },
		func(h *History) {
			c := *last(h, Allocate)
			c.RequestID, c.Outcome, c.Reason, c.Nonces, c.Holds = "r", Refused, "conflict", nil, []Given{{0, 1}}
			h.Calls = append(h.Calls, c)
		},
	},
	{
		"a refused allocate happened", RefusedDone, false,
		func(w *world) { w.allocate("") },
		func(h *History) {
			h.Calls[0].Outcome, h.Calls[0].Reason, h.Calls[0].Nonces = Refused, "fenced", nil
		},
	},
	{
		"an allocate happened twice", RefusedDone, true,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) { h.Calls = h.Calls[1:] },
	},
	{
		"a refused mark happened", RefusedDone, true,
		func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1) },
		func(h *History) {
			c := last(h, MarkUsed)
			c.Outcome, c.State, c.Reason = Refused, "", "unavailable none"
		},
	},
	{
		"a refused release happened", RefusedDone, false,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 1) },
		func(h *History) {
			c := last(h, MarkRecyclable)
			c.Outcome, c.State, c.Reason = Refused, "", "fenced"
		},
	},
	{
		"a nonce below the cursor is nowhere", Hole, true,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) {
			h.Calls = h.Calls[1:]
			h.Final.Signers[0].Rows = h.Final.Signers[0].Rows[1:]
			h.Final.Signers[0].Held = 1
		},
	},
	{
		"the count of holds is wrong", Hole, false,
		func(w *world) { w.allocate("") },
		func(h *History) { h.Final.Signers[0].Held = 0 },
	},
	{
		"a hold is long overdue", Hole, false,
		func(w *world) { w.allocate("") },
		func(h *History) { h.Final.Now += 10 * hold },
	},
	{
		"calls of one connection overtake one another", disorder, false,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) {
			a, b := &h.Calls[0], &h.Calls[1]
			a.Conn, a.Seq, b.Conn, b.Seq = 1, 2, 1, 1
			a.Start, a.End = b.Start, b.End
		},
	},
	{
		"a release overtakes the mark before it", disorder, false,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 1); w.mark(MarkUsed, 0, 1) },
		func(h *History) {
			for i, seq := range []int64{1, 3, 2} {
				h.Calls[i].Conn, h.Calls[i].Seq = 1, seq
			}
			h.Calls[1].Start, h.Calls[1].End = h.Calls[2].Start, h.Calls[2].End
		},
	},
	{
		"a gateway says internal", Alarm, false,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) {
			c := *last(h, Allocate)
			c.Outcome, c.Reason, c.Nonces = Refused, "internal", nil
			h.Calls = append(h.Calls, c)
		},
	},
	{
		"nonces come in an order that time forbids", notLinear, true,
		func(w *world) { w.allocate(""); w.allocate("") },
		func(h *History) {
			a, b := &h.Calls[0], &h.Calls[1]
			a.Start, a.End, b.Start, b.End = b.Start, b.End, a.Start, a.End
		},
	},
	{
		"a refusal tells of a state that never was", notLinear, true,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 2) },
		func(h *History) { last(h, MarkRecyclable).Seen = &Seen{Status: Consumed, Attempt: 1, TxHash: "0xff"} },
	},
	{
		"a nonce that was handed out is not found", notLinear, true,
		func(w *world) { w.mark(MarkRecyclable, 0, 1); w.allocate("") },
		func(h *History) {
			h.Calls[0].Start, h.Calls[0].End = h.Calls[1].End+1, h.Calls[1].End+2
		},
	},
	{
		"a status shows an older cursor", notLinear, true,
		func(w *world) { w.allocate(""); w.allocate(""); w.call(Call{Kind: Status, Outcome: Happened, Next: 1}) },
		func(h *History) {},
	},
	{
		"a floor is forgotten", notLinear, true,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 1); w.floor(1); w.allocate("") },
		func(h *History) {
			s := &h.Final.Signers[0]
			c := last(h, Allocate)
			c.Nonces = []Given{{0, 2}}
			s.Rows = []Row{{Nonce: 0, Status: Held, Attempt: 2, HeldUntil: c.HeldUntil}}
			s.Next = 1
		},
	},
}

func TestEveryRuleFindsWhatItForbids(t *testing.T) {
	for _, tt := range badHistories {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.make(w)
			h := w.end()
			tt.spoil(h)
			r := check(h)
			rules := r.Rules()
			if !slices.Contains(rules, tt.rule) {
				t.Errorf("found %v, want %q: %v", rules, tt.rule, r.Violations)
			}
			if got := slices.Contains(rules, notLinear); got != tt.model && tt.model {
				t.Errorf("porcupine found nothing: %v", r.Violations)
			}
		})
	}
}

func TestACallMayBeToldThatItsOwnHoldHasEndedButNotThatItIsAnother(t *testing.T) {
	for detail, right := range map[string]bool{
		"conflict: the hold of this requestId has ended":          true,
		"conflict: this requestId was used with other parameters": false,
	} {
		w := newWorld()
		w.allocate("r")
		h := w.end()
		c := &h.Calls[0]
		c.Outcome, c.Reason, c.Detail, c.Holds, c.Nonces = Refused, "conflict", detail, c.Nonces, nil
		if r := check(h); r.OK() != right {
			t.Errorf("%s: found %v", detail, r.Violations)
		}
	}
}

func TestTooFewAcknowledgedCallsMakeAHistoryVoid(t *testing.T) {
	w := newWorld()
	w.allocate("")
	r := Check(w.end(), Limits{MinAcknowledged: 2})
	if got := r.Rules(); !slices.Equal(got, []Rule{Void}) {
		t.Errorf("found %v, want %q", got, Void)
	}
}

func TestAModelThatRunsOutOfTimeIsAFailure(t *testing.T) {
	r := Check(random(1), Limits{MaxOverdue: time.Second, ModelTimeout: time.Nanosecond})
	if got := r.Rules(); !slices.Equal(got, []Rule{Undecided}) {
		t.Errorf("found %v, want %q", got, Undecided)
	}
}

func TestAHistoryIsSavedWithItsPicture(t *testing.T) {
	w := newWorld()
	w.call(*w.allocate("r"))
	h, dir := w.end(), t.TempDir()
	h.Calls[1].RequestID = ""
	path := filepath.Join(dir, "history.json")
	if err := h.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r := check(again)
	if err := r.SavePictures(dir); err != nil {
		t.Fatal(err)
	}
	pictures, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil || len(pictures) != 1 {
		t.Errorf("pictures %v %v, want one", pictures, err)
	}
	var b strings.Builder
	r.Print(&b)
	if !strings.Contains(b.String(), "VIOLATION one holder: s: nonce 0 attempt 1") {
		t.Errorf("the report says %s", b.String())
	}
}
