//go:build unix

package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

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
			if started != none || !ok || found.Flag != field {
				t.Errorf("%s %d: %v, want an error about it", field, i, err)
			}
		}
	}
	if _, err := start(right, t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("unreachable: %v, want an error that names the address", err)
	}
}

func TestAWrongLoadIsRefusedWithItsField(t *testing.T) {
	refusedByField(t, endless(nowhere), Load.Run, map[string][]func(*Load){
		"url": {
			func(l *Load) { l.URLs = nil },
			func(l *Load) { l.URLs = []string{"ws://a/ws", "http://b/ws"} },
			func(l *Load) { l.URLs = []string{"ws:///ws"} },
			func(l *Load) { l.URLs = []string{"://"} },
		},
		"connections": {func(l *Load) { l.Connections = 0 }, func(l *Load) { l.Connections = 1_000_001 }},
		"inflight":    {func(l *Load) { l.Inflight = 0 }, func(l *Load) { l.Inflight = 1001 }},
		"rate":        {func(l *Load) { l.Rate = -1 }, func(l *Load) { l.Rate = math.NaN() }, func(l *Load) { l.Rate = math.Inf(1) }},
		"ramp-up":     {func(l *Load) { l.RampUp = -1 }},
		"warmup":      {func(l *Load) { l.Warmup = -1 }},
		"duration":    {func(l *Load) { l.Duration = 0 }},
		"signers":     {func(l *Load) { l.Signers.Count = 0 }, func(l *Load) { l.Signers.Accounts = []int64{7} }},
		"signer-base": {func(l *Load) { l.Signers.Base = -1 }, func(l *Load) { l.Signers.Base = math.MaxInt64 }},
		"zipf":        {func(l *Load) { l.Signers.Zipf = 1 }, func(l *Load) { l.Signers.Zipf = math.NaN() }, func(l *Load) { l.Signers.Zipf = -2 }},
		"subscribers": {func(l *Load) { l.Subscribers = -1 }},
		"mix":         {func(l *Load) { l.Mix = Mix{Shares: shares(0, 0, 0, 1)} }, func(l *Load) { l.Mix = Mix{Shares: shares(1, 0, 0, -1)} }, func(l *Load) { l.Mix = Mix{Shares: shares(1, 0, 0, 0), Pairs: true} }, func(l *Load) { l.Mix.Shares[Allocate] = math.Inf(1) }},
	})
}

func shares(allocate, markUsed, markRecyclable, status float64) [methodCount]float64 {
	return [methodCount]float64{allocate, markUsed, markRecyclable, status}
}

func parseMix(text string) (m Mix, err error) {
	err = m.UnmarshalText([]byte(text))
	return m, err
}

func TestAMixIsReadAndPickedByItsShares(t *testing.T) {
	m, err := parseMix("allocate=6, markUsed=3,markRecyclable=0.5,status=0.5")
	if want := (Mix{Shares: shares(6, 3, 0.5, 0.5)}); err != nil || m != want {
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
	if m, err := parseMix("pairs"); err != nil || m != (Mix{Pairs: true}) || m.shares()["markUsed"] != 0.5 || len(m.shares()) != 2 {
		t.Errorf("pairs are %+v, %v, with the shares %v", m, err, m.shares())
	}
	for _, text := range []string{"", "allocate", "pairs=1", "pairs,allocate=1", "allocate=x", "mint=1", "allocate=0", "status=1", "allocate=1,status=-1", "allocate=NaN", "allocate=1,"} {
		if m, err := parseMix(text); err == nil {
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
	if cap(b.items) > 4*maxBacklog {
		t.Errorf("room for %d times, more than four times the bound", cap(b.items))
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

// book is a server of pairs. It hands out each nonce once, refuses some allocations, and
// looks at every mark.
type book struct {
	t *testing.T

	mu    sync.Mutex // guards what follows
	next  int64
	open  map[int]map[int64]string // by connection: nonces not marked yet, and their signers
	most  int                      // open at a connection
	marks int64
}

func (b *book) answer(c *target.Conn, _ int, message []byte) error {
	var ask struct {
		ID     int
		Method string
		Params struct {
			Signer, TxHash string
			Nonce, Attempt int64
		}
	}
	if err := json.Unmarshal(message, &ask); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[c.Number] == nil {
		b.open[c.Number] = make(map[int64]string)
	}
	open, p := b.open[c.Number], ask.Params
	switch ask.Method {
	case wire.MethodAllocate:
		if b.next++; b.next%5 == 0 {
			return c.Reply(refused(b.t, message, "server_busy"))
		}
		open[b.next] = p.Signer
		b.most = max(b.most, len(open))
		return c.Reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"signer":%q,"nonce":%d,"attempt":7,"holdMs":60000}}`, ask.ID, p.Signer, b.next))
	case wire.MethodMarkUsed:
		if open[p.Nonce] != p.Signer || p.Attempt != 7 || p.TxHash == "" {
			b.t.Errorf("connection %d marks %s, and has %q of that nonce", c.Number, message, open[p.Nonce])
		}
		delete(open, p.Nonce)
		b.marks++
	default:
		b.t.Errorf("a pair asks for %s", ask.Method)
	}
	return c.Reply(okay(b.t, message))
}

func TestOfAPairTheGetterMarksWhatItGotAndNothingElse(t *testing.T) {
	for name, change := range map[string]func(*Load){
		"closed loop": func(*Load) {},
		"open loop":   func(l *Load) { l.Rate, l.Inflight = 1000, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := &book{t: t, open: make(map[int]map[int64]string)}
			l := endless(target.Serve(t, b.answer))
			l.Mix = Mix{Pairs: true}
			change(&l)
			r := enough(t, l, 100)
			allocated, marked := r.Methods["allocate"].LatencyMs.Count, r.Methods["markUsed"].LatencyMs.Count
			if r.Acknowledged != allocated+marked || len(r.Methods) != 2 || r.Methods["allocate"].Refused["server_busy"] == 0 {
				t.Errorf("%+v; want both methods, each request counted, and some allocations refused", r)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			left := int64(0)
			for _, open := range b.open {
				left += int64(len(open))
			}
			// Of b.next allocations a fifth was refused. What is left was handed out at the end.
			if handedOut := b.next - b.next/5; b.marks == 0 || b.marks+left != handedOut || b.most > l.window()*l.Inflight {
				t.Errorf("%d marks of %d hand-outs, %d left, up to %d open at a connection", b.marks, handedOut, left, b.most)
			}
			if l.Rate == 0 && b.most > l.Inflight {
				t.Errorf("up to %d open at a connection with bursts of %d", b.most, l.Inflight)
			}
		})
	}
}

func TestPairsOfOneHotSignerNeverHoldMoreThanIsUnderWay(t *testing.T) {
	l := endless(target.StartGateway(t, "--max-holds=12").URL)
	l.Signers, l.Mix = Signers{Count: 1}, Mix{Pairs: true} // three connections, bursts of four
	r := enough(t, l, 100)
	if marks := r.Methods["markUsed"].LatencyMs.Count; marks == 0 || r.Refusals() != 0 || r.Failed != 0 {
		t.Errorf("%+v; want marks, and no hold_limit", r)
	}
}
