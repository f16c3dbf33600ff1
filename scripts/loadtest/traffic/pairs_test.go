package traffic

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"noncegate/scripts/loadtest/target"
	"noncegate/wire"
)

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
			l := short(target.Serve(t, b.answer))
			l.Mix = Mix{Pairs: true}
			change(&l)
			r := run(t, l)
			allocated, marked := r.Methods["allocate"].Acknowledged, r.Methods["markUsed"].Acknowledged
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
	l := short(target.StartGateway(t, "--max-holds=12").URL)
	l.Signers, l.Mix = Signers{Count: 1}, Mix{Pairs: true} // three connections, bursts of four
	r := run(t, l)
	if marks := r.Methods["markUsed"].Acknowledged; marks == 0 || r.Refusals() != 0 || r.Failed != 0 {
		t.Errorf("%+v; want marks, and no hold_limit", r)
	}
}
