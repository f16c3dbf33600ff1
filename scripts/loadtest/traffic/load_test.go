//go:build unix

package traffic

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/wire"
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

func TestSignersAreChosenUniformly(t *testing.T) {
	some := Signers{Base: 1000, Count: 2, Accounts: []int64{3, 8}}
	for _, signers := range []Signers{{Base: 1000, Count: 2}, some} {
		n, rng := map[int64]int{}, rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			n[signers.pick(rng)]++
		}
		for i := range signers.Count {
			account, ours := signers.accountOf(signers.Name(i))
			if !ours || n[account] < 4500 || len(n) != signers.Count {
				t.Errorf("of %+v account %d, %t was chosen %d times of 10,000, want half", signers, account, ours, n[account])
			}
		}
	}
	for _, none := range []string{Signer(1004), Signer(1009), "alice", Signer(1003) + "0", strings.Replace(Signer(1003), "0x00", "0x01", 1)} {
		if _, ours := some.accountOf(none); ours {
			t.Errorf("%s is taken for one of two others", none)
		}
	}
}

func TestHoldsAreMarkedOldestFirstAndOnlyWhileTheyLast(t *testing.T) {
	l := Load{Inflight: 1, Mix: Mix{Pairs: true}, Signers: Signers{Count: 1}}
	c := newClient(&l, newMeter(), nil, 0)
	for i := range int64(maxHolds + 10) {
		rep := reply{body: fmt.Appendf(nil, `{"nonce":%d,"attempt":1,"holdMs":%d}`, i, i)}
		if err := c.acknowledgedLocked(&request{}, &rep, 0); err != nil {
			t.Fatal(err)
		}
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

func (b *book) answer(c *conn, _ int, message []byte) error {
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
	if b.open[c.number] == nil {
		b.open[c.number] = make(map[int64]string)
	}
	open, p := b.open[c.number], ask.Params
	switch ask.Method {
	case wire.MethodAllocate:
		if b.next++; b.next%5 == 0 {
			return c.reply(refused(b.t, message, "server_busy"))
		}
		open[b.next] = p.Signer
		b.most = max(b.most, len(open))
		return c.reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"signer":%q,"nonce":%d,"attempt":7,"holdMs":60000}}`, ask.ID, p.Signer, b.next))
	case wire.MethodMarkUsed:
		if open[p.Nonce] != p.Signer || p.Attempt != 7 || p.TxHash == "" {
			b.t.Errorf("connection %d marks %s, and has %q of that nonce", c.number, message, open[p.Nonce])
		}
		delete(open, p.Nonce)
		b.marks++
	default:
		b.t.Errorf("a pair asks for %s", ask.Method)
	}
	return c.reply(okay(b.t, message))
}

func TestOfAPairTheGetterMarksWhatItGotAndNothingElse(t *testing.T) {
	for name, change := range map[string]func(*Load){
		"closed loop": func(*Load) {},
		"open loop":   func(l *Load) { l.Rate, l.Inflight = 1000, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := &book{t: t, open: make(map[int]map[int64]string)}
			l := endless(serve(t, b.answer))
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
	l := endless(startGateway(t, "--max-holds=12").URL)
	l.Signers, l.Mix = Signers{Count: 1}, Mix{Pairs: true} // three connections, bursts of four
	r := enough(t, l, 100)
	if marks := r.Methods["markUsed"].LatencyMs.Count; marks == 0 || r.Refusals() != 0 || r.Failed != 0 {
		t.Errorf("%+v; want marks, and no hold_limit", r)
	}
}
