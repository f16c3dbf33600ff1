//go:build unix

package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

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
		if n := picked[slices.Index(methodNames[:], method)]; math.Abs(float64(n)/10_000-share) > 0.02 {
			t.Errorf("%d of 10000 are %s, want a share of %.2f", n, method, share)
		}
	}
	if m, err := parseMix("pairs"); err != nil || m != (Mix{Pairs: true}) || m.shares()["markUsed"] != 0.5 || len(m.shares()) != 2 {
		t.Errorf("pairs are %+v, %v, with the shares %v", m, err, m.shares())
	}
	for _, text := range []string{"", "allocate", "pairs=1", "pairs,allocate=1", "allocate=x", "mint=1", "allocate=0", "status=1",
		"allocate=1,status=-1", "allocate=NaN", "allocate=1,"} {
		if m, err := parseMix(text); err == nil {
			t.Errorf("%q was taken for %+v", text, m)
		}
	}
}

func TestSignersAreChosenUniformlyOfThoseThatAreForTheConnection(t *testing.T) {
	l := Load{Signers: Signers{Base: 1000, Count: 10}, Owned: [][]int64{{1}, {3, 8}}}
	c, n := newClient(&l, newMeter(), nil, 3), map[int64]int{}
	for range 10_000 {
		n[c.pickLocked()]++
	}
	if len(n) != 2 || n[1003] < 4500 || n[1008] < 4500 {
		t.Errorf("accounts were chosen %v times, want 1003 and 1008 half of the times each", n)
	}
	l.Owned = nil
	for range 10_000 {
		n[c.pickLocked()]++
	}
	if len(n) != l.Signers.Count || n[1009] < 900 {
		t.Errorf("accounts were chosen %v times, want all of them", n)
	}
	if account, ours := l.Signers.accountOf(l.Signers.Name(3)); !ours || account != 1003 {
		t.Errorf("the fourth signer is that of account %d, %t", account, ours)
	}
	for _, none := range []string{Signer(999), Signer(1010), "alice", Signer(1003) + "0", strings.Replace(Signer(1003), "0x00", "0x01", 1)} {
		if _, ours := l.Signers.accountOf(none); ours {
			t.Errorf("%s is taken for one of ten others", none)
		}
	}
}

func TestHoldsAreMarkedOldestFirstAndOnlyWhileTheyLast(t *testing.T) {
	l := Load{Inflight: 1, Mix: Mix{Pairs: true}, Signers: Signers{Count: 1}}
	c := newClient(&l, newMeter(), nil, 0)
	for i := range int64(maxHolds + 10) {
		rep := reply{body: fmt.Appendf(nil, `{"nonce":%d,"attempt":1,"holdMs":%d}`, i, i)}
		expect.Must(t, c.acknowledgedLocked(&request{}, &rep, 0))
	}
	// The ten oldest had to go, and those up to 20 have ended.
	var r request
	for want := int64(21); want < maxHolds+10; want++ {
		if c.composeLocked(&r, 20*time.Millisecond); r.method != MarkUsed || r.nonce != want {
			t.Fatalf("%+v; want a mark of %d", r, want)
		}
	}
	if c.composeLocked(&r, 0); r.method != Allocate || r.attempt != 0 {
		t.Errorf("%+v; want an allocation, for there is no hold left", r)
	}
}

func TestOfAPairTheGetterMarksWhatItGotBeforeItGetsMore(t *testing.T) {
	for name, rate := range map[string]float64{"closed loop": 0, "open loop": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := new(planted)
			l := endless(serve(t, w.answer))
			l.Mix, l.Signers.Count, l.Rate = Mix{Pairs: true}, 1, rate
			r := enough(t, l, 100)
			allocated, marked := r.Methods["allocate"].LatencyMs.Count, r.Methods["markUsed"].LatencyMs.Count
			if r.Acknowledged != allocated+marked || marked == 0 || r.Failed+r.Refusals() != 0 {
				t.Errorf("%+v; want both methods, and each request counted", r)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if underWay := l.Connections * l.Inflight * l.window(); w.held() > underWay || w.mostHeld > underWay {
				t.Errorf("%d nonces are held at the end, and %d were at a time, want at most %d", w.held(), w.mostHeld, underWay)
			}
		})
	}
}
