package traffic

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/verify"
)

// nowhere is an address at which nobody is.
const nowhere = "ws://127.0.0.1:1/ws"

// refusedByField changes what is right in one field at a time, which the error must name.
// What is right gets as far as the address, which the error names then.
func refusedByField[T any, R comparable](t *testing.T, right T, start func(T, context.Context) (R, error), wrong map[string][]func(*T)) {
	t.Helper()
	for field, changes := range wrong {
		for i, change := range changes {
			changed := right
			change(&changed)
			var none R
			started, err := start(changed, t.Context())
			found, ok := errors.AsType[*FieldError](err)
			if started != none || !ok || found.Field != field {
				t.Errorf("%s %d: %v, want an error about it", field, i, err)
			}
		}
	}
	if _, err := start(right, t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("unreachable: %v, want an error that names the address", err)
	}
}

func TestAWrongLoadIsRefusedWithItsField(t *testing.T) {
	refusedByField(t, short(nowhere), Load.Run, map[string][]func(*Load){
		"URLs": {
			func(l *Load) { l.URLs = nil },
			func(l *Load) { l.URLs = []string{"ws://a/ws", "http://b/ws"} },
			func(l *Load) { l.URLs = []string{"ws:///ws"} },
			func(l *Load) { l.URLs = []string{"://"} },
		},
		"Connections": {func(l *Load) { l.Connections = 0 }, func(l *Load) { l.Connections = 1_000_001 }},
		"Inflight":    {func(l *Load) { l.Inflight = 0 }, func(l *Load) { l.Inflight = 1001 }},
		"Rate":        {func(l *Load) { l.Rate = -1 }, func(l *Load) { l.Rate = math.NaN() }, func(l *Load) { l.Rate = math.Inf(1) }},
		"RampUp":      {func(l *Load) { l.RampUp = -1 }},
		"Warmup":      {func(l *Load) { l.Warmup = -1 }},
		"Duration":    {func(l *Load) { l.Duration = 0 }},
		"Signers":     {func(l *Load) { l.Signers.Count = 0 }, func(l *Load) { l.Signers.Accounts = []int64{7} }},
		"SignerBase":  {func(l *Load) { l.Signers.Base = -1 }, func(l *Load) { l.Signers.Base = math.MaxInt64 }},
		"Zipf":        {func(l *Load) { l.Signers.Zipf = 1 }, func(l *Load) { l.Signers.Zipf = math.NaN() }, func(l *Load) { l.Signers.Zipf = -2 }},
		"Subscribers": {func(l *Load) { l.Subscribers = -1 }},
		"Mix":         {func(l *Load) { l.Mix = Mix{Status: 1} }, func(l *Load) { l.Mix = Mix{Allocate: 1, Status: -1} }, func(l *Load) { l.Mix = Mix{Allocate: 1, Pairs: true} }, func(l *Load) { l.Mix.Allocate = math.Inf(1) }},
	})
}

func TestAMixIsReadAndPickedByItsShares(t *testing.T) {
	m, err := ParseMix("allocate=6, markUsed=3,markRecyclable=0.5,status=0.5")
	if want := (Mix{Allocate: 6, MarkUsed: 3, MarkRecyclable: 0.5, Status: 0.5}); err != nil || m != want {
		t.Fatalf("%+v, %v; want %+v", m, err, want)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var picked [methodCount]int
	for range 10_000 {
		picked[m.pick(rng)]++
	}
	for method, share := range m.shares() {
		for i := range methodCount {
			if i.String() == method && math.Abs(float64(picked[i])/10_000-share) > 0.02 {
				t.Errorf("%d of 10000 are %s, want a share of %.2f", picked[i], method, share)
			}
		}
	}
	if m, err := ParseMix("pairs"); err != nil || m != (Mix{Pairs: true}) || m.shares()["markUsed"] != 0.5 || len(m.shares()) != 2 {
		t.Errorf("pairs are %+v, %v, with the shares %v", m, err, m.shares())
	}
	for _, text := range []string{"", "allocate", "pairs=1", "pairs,allocate=1", "allocate=x", "mint=1", "allocate=0", "status=1", "allocate=1,status=-1", "allocate=NaN", "allocate=1,"} {
		if m, err := ParseMix(text); err == nil {
			t.Errorf("%q was taken for %+v", text, m)
		}
	}
}

func TestSignersAreChosenUniformlyOrByZipf(t *testing.T) {
	count := func(s Signers) map[int64]int {
		c, n := newChooser(s, rand.New(rand.NewPCG(1, 2))), map[int64]int{}
		for range 10_000 {
			account := c.next()
			if !s.has(account) {
				t.Fatalf("account %d of %+v", account, s)
			}
			n[account]++
		}
		return n
	}
	for account, n := range count(Signers{Base: 1000, Count: 10}) {
		if n < 800 || n > 1200 {
			t.Errorf("account %d was chosen %d times of 10000, want about 1000", account, n)
		}
	}
	if n := count(Signers{Base: 1000, Count: 1000, Zipf: 1.2}); n[1000] < 1500 || n[1000] < 5*n[1009] {
		t.Errorf("the first was chosen %d times and the tenth %d, want most for the first", n[1000], n[1009])
	}
	if n := count(Signers{Base: 5, Count: 1, Zipf: 1.2}); n[5] != 10_000 {
		t.Errorf("the only one was chosen %d times", n[5])
	}
	some := Signers{Base: 1000, Count: 2, Accounts: []int64{3, 8}}
	if n := count(some); len(n) != 2 || n[1003] < 4500 || n[1008] < 4500 || some.has(1004) || some.Name(1) != verify.Signer(1008) {
		t.Errorf("of two that are named %v were chosen", n)
	}
	if got, want := (Signers{Base: 16}).Name(1), verify.Signer(17); got != want {
		t.Errorf("name %s, want %s", got, want)
	}
}

func TestABacklogKeepsItsOrderAndItsBound(t *testing.T) {
	var b backlog
	pushed, popped := time.Duration(0), time.Duration(0)
	for round := range 3 {
		for b.push(pushed) {
			pushed++
		}
		if waiting := pushed - popped; waiting != maxBacklog {
			t.Errorf("round %d: %d wait, want %d", round, waiting, maxBacklog)
		}
		for range maxBacklog * 2 / 3 {
			if due, ok := b.pop(); !ok || due != popped {
				t.Fatalf("popped %d, %t; want %d", due, ok, popped)
			}
			popped++
		}
	}
	if cap(b.due) > 4*maxBacklog {
		t.Errorf("room for %d times, more than four times the bound", cap(b.due))
	}
}

func TestHoldsAreMarkedOldestFirstAndOnlyWhileTheyLast(t *testing.T) {
	h := holds{limit: maxHolds}
	for i := range maxHolds + 10 {
		h.push(hold{nonce: int64(i), until: time.Duration(i)})
	}
	// The ten oldest had to go, and those up to 20 have ended.
	for want := int64(21); want < maxHolds+10; want++ {
		if got, ok := h.pop(20); !ok || got.nonce != want {
			t.Fatalf("popped %d, %t; want %d", got.nonce, ok, want)
		}
	}
	if got, ok := h.pop(0); ok {
		t.Errorf("popped %+v of none", got)
	}
}
