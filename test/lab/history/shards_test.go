package history

import (
	"reflect"
	"slices"
	"testing"
	"time"

	gateway "noncegate/nonce"
)

// remembers has the store remember request ids, as those of shards do.
func remembers(h *History) map[string][]Given {
	s := &h.Final.Signers[0]
	s.Requests = make(map[string][]Given)
	for i := range h.Calls {
		if c := &h.Calls[i]; c.Kind == Allocate && c.Outcome == Happened && c.RequestID != "" {
			s.Requests[c.RequestID] = c.Nonces
		}
	}
	return s.Requests
}

// What is known only where signers are in shards.
var badShards = []bad{
	{
		"a nonce lives and is in the history", Hole, false,
		func(w *world) { w.allocate(""); w.mark(MarkRecyclable, 0, 1) },
		func(h *History) {
			s := &h.Final.Signers[0]
			s.Rows = append(s.Rows, Row{Nonce: 0, Attempt: 1, Status: Consumed, Reason: belowFloor})
		},
	},
	{
		"a nonce lives and is in the history for a while", Hole, false,
		func(w *world) { w.allocate("") },
		func(h *History) { h.Samples = []Sample{{Signer: "s", Both: []int64{0}}} },
	},
	{
		"a shard goes to another node under the same token", tokenBack, false,
		func(w *world) { w.allocate("") },
		func(h *History) {
			h.Samples = []Sample{{Signer: "s", Token: 1, Owner: "a"}, {Signer: "s", Token: 1, Owner: "b"}}
		},
	},
	{
		"a shard is given back under the same token", tokenBack, false,
		func(w *world) { w.allocate("") },
		func(h *History) {
			h.Samples = []Sample{{Signer: "s", Token: 1, Owner: "a", Incarnation: 1}, {Signer: "s", Token: 1}}
		},
	},
	{
		"a row is written under a token that is over", tokenBack, false,
		func(w *world) { w.allocate("") },
		func(h *History) {
			h.Samples = []Sample{{Signer: "s", Token: 2, Version: 1, Written: 1}, {Signer: "s", Token: 2, Version: 2, Written: 1}}
		},
	},
	{
		"a request that was answered is not remembered", OneAnswer, false,
		func(w *world) { w.allocate("r") },
		func(h *History) { delete(remembers(h), "r") },
	},
	{
		"a request is remembered with other nonces", OneAnswer, false,
		func(w *world) { w.allocate("r"); w.allocate("") },
		func(h *History) { remembers(h)["r"] = []Given{{1, 1}} },
	},
	{
		"a request that was refused is remembered", RefusedDone, false,
		func(w *world) { c := w.allocate("r"); w.forget(c); c.Outcome = Refused },
		func(h *History) { remembers(h)["r"] = []Given{{0, 1}} },
	},
	{
		"a request is remembered that handed nothing out", RefusedDone, false,
		func(w *world) { w.allocate("") },
		func(h *History) { remembers(h)["of another node"] = []Given{{0, 2}} },
	},
	{
		"two requests are remembered with one hand-out", OneHolder, false,
		func(w *world) { w.allocate("r") },
		func(h *History) { remembers(h)["of another node"] = []Given{{0, 1}} },
	},
	{
		"a hold is ended within the second behind its deadline", liveHold, true,
		func(w *world) { w.allocate(""); w.now += hold + 300; w.allocate("") },
		func(h *History) { h.GraceMs = 1000 },
	},
	{
		"a hold is ended early by a clock that stepped back", liveHold, true,
		func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate("") },
		func(h *History) { h.Shifts = []Shift{{h.Calls[0].End, h.Calls[0].End + 1, -1500 * time.Millisecond}} },
	},
}

func TestEveryRuleOfShardsFindsWhatItForbids(t *testing.T) {
	for _, tt := range badShards {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.make(w)
			h := w.end()
			tt.spoil(h)
			r := check(h)
			rules := r.Rules()
			if !slices.Contains(rules, tt.rule) || tt.model && !slices.Contains(rules, notLinear) {
				t.Errorf("found %v, want %q, and porcupine %v: %v", rules, tt.rule, tt.model, r.Violations)
			}
		})
	}
}

func TestWhatShardsDoIsNotCalledWrong(t *testing.T) {
	for name, of := range map[string]struct {
		make  func(w *world)
		spoil func(h *History)
	}{
		"requests are remembered with what they got": {
			func(w *world) { w.allocate("r"); w.allocate("q") },
			func(h *History) { remembers(h)["of another node"] = []Given{} },
		},
		"mode basic writes without a token": {
			func(w *world) { w.allocate("") },
			func(h *History) {
				h.Samples = []Sample{{Signer: "s", Token: 2, Version: 1, Written: 1}, {Signer: "s", Token: 2, Version: 2}}
			},
		},
		"a hold is ended when its second is over": {
			func(w *world) { w.allocate(""); w.now += 2*hold + 20; w.allocate("") },
			func(h *History) { h.GraceMs = 1000 },
		},
		"a nonce that a floor skipped is consumed": {
			func(w *world) {
				w.floor(5)
				c := w.mark(MarkRecyclable, 3, 1)
				c.Reason, c.Seen = "conflict", &Seen{Status: Consumed}
			},
			func(*History) {},
		},
		"a hold is ended before the store's clock steps back, and its nonce handed out after it": {
			func(w *world) { w.allocate(""); w.now += 2 * hold; w.allocate("") },
			func(h *History) {
				at := h.Calls[1].Start - time.Millisecond
				h.Shifts = []Shift{{at, at, -3 * time.Second}}
			},
		},
		"a hold is ended in real time before its deadline when the store's clock stepped forward": {
			func(w *world) { w.allocate(""); w.allocate("") },
			func(h *History) {
				// The gateway that handed out did not know of the step.
				c, s := &h.Calls[1], &h.Final.Signers[0]
				c.Nonces = []Given{{0, 2}}
				s.Rows, s.Next, s.Held = []Row{{Nonce: 0, Status: Held, Attempt: 2, HeldUntil: c.HeldUntil}}, 1, 1
				h.Shifts = []Shift{{h.Calls[0].End, h.Calls[0].End + 1, 3 * time.Second}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			of.make(w)
			h := w.end()
			of.spoil(h)
			if r := check(h); !r.OK() {
				t.Error(r.Violations)
			}
		})
	}
}

func TestTheStoresClockIsAsLateAsAnySettingAllows(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	s := &signer{began: 1000, shifts: []Shift{{ms(100), ms(110), ms(500)}, {ms(200), ms(210), ms(-300)}}}
	for _, tt := range []struct{ from, to, want int }{
		{10, 50, 50}, // before the first
		{50, 104, 604},
		{105, 107, 607},
		{120, 150, 650},
		{150, 300, 710}, // the first setting may have lasted until 210
		{211, 300, 0},
	} {
		if got := s.latest(ms(tt.from), ms(tt.to)) - s.began - 1; got != int64(tt.want) {
			t.Errorf("from %d to %d: got %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestWhatLivesIsReadAsGatewaysWriteIt(t *testing.T) {
	live := []gateway.Entry{
		{Nonce: 3, Attempt: 2, Status: gateway.Held, Until: 1234},
		{Nonce: 5, Attempt: 1, Status: gateway.Released, Note: &gateway.Note{Reason: "w1"}},
	}
	s := StoredSigner{Signer: "s", Next: 6}
	if err := s.Lives(gateway.AppendLive(nil, live)); err != nil {
		t.Fatal(err)
	}
	want := []Row{{Nonce: 3, Status: Held, Attempt: 2, HeldUntil: 1234}, {Nonce: 5, Status: Released, Attempt: 1, Reason: "w1"}}
	if !reflect.DeepEqual(s.Rows, want) || s.Held != 1 {
		t.Errorf("got %+v, %d held, want %+v", s.Rows, s.Held, want)
	}
	if err := s.Lives([]byte("rubbish")); err == nil {
		t.Error("rubbish was read")
	}
}
