//go:build unix

package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// planted is a gateway of one signer that is right, or wrong in one way from the tenth nonce on.
type planted struct {
	twice    bool // hands each nonce out twice
	skips    bool // leaves a nonce out
	forgets  bool // keeps no mark that it answers
	releases bool // frees what it was told is used
	another  bool // keeps another transaction than it was told

	mu   sync.Mutex // guards what follows
	next int64
	rows []wire.Allocation

	mostHeld int // at a time
}

func (w *planted) held() (n int) {
	for _, row := range w.rows {
		if row.Status == wire.StatusHeld {
			n++
		}
	}
	return n
}

const from = 10

func (w *planted) answer(c *conn, _ int, message []byte) error {
	var ask struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Signer, TxHash string
			Nonce, Attempt int64
		}
	}
	if err := json.Unmarshal(message, &ask); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	late, p, until := w.next >= from, ask.Params, wire.Time(time.Now().Add(time.Minute))
	var answer any
	switch ask.Method {
	case wire.MethodAllocate:
		n := w.next
		if w.twice && late {
			n--
		} else {
			w.rows = append(w.rows, wire.Allocation{Nonce: n, Status: wire.StatusHeld, Attempt: 1, HeldUntil: &until})
			w.next++
		}
		if w.skips && late {
			w.next++
		}
		w.mostHeld = max(w.mostHeld, w.held())
		answer = wire.AllocateResult{Signer: p.Signer, Nonce: n, Attempt: 1, FencingToken: 1, HeldUntil: *w.row(n).HeldUntil, HoldMs: 60_000}
	case wire.MethodMarkUsed:
		if row := w.row(p.Nonce); !w.forgets || !late {
			row.Status, row.TxHash = wire.StatusConsumed, p.TxHash
			if w.another && late {
				row.TxHash = "0x" + strings.Repeat("ab", 32)
			}
			if w.releases && late {
				row.Status, row.TxHash = wire.StatusReleased, ""
			}
		}
		answer = wire.MarkResult{Signer: p.Signer, Nonce: p.Nonce, Attempt: p.Attempt, Status: wire.StatusConsumed, TxHash: p.TxHash}
	case wire.MethodStatus:
		answer = wire.StatusResult{Signer: p.Signer, Next: w.next, FencingToken: 1, Version: w.next}
	case wire.MethodList:
		answer = wire.ListResult{Allocations: w.rows}
	}
	text, err := wire.Marshal(answer)
	if err != nil {
		return err
	}
	return c.reply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, ask.ID, text))
}

func (w *planted) row(n int64) *wire.Allocation {
	return &w.rows[slices.IndexFunc(w.rows, func(a wire.Allocation) bool { return a.Nonce == n })]
}

// verified makes a load of pairs on one signer, verified.
func verified(t *testing.T, url string, signers int) *result.Verify {
	t.Helper()
	v, err := NewRecorder(t.Context(), []string{url}, Access{}, Signers{Count: signers})
	expect.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := int64(0)
	load := Load{
		URLs: []string{url}, Connections: 2, Inflight: 2, Rate: 100, Duration: time.Hour, Mix: Mix{Pairs: true},
		Signers: Signers{Count: signers}, Verify: v,
		Progress: func(s result.Second) {
			if answered += s.Acknowledged; answered > 8*from {
				cancel()
			}
		},
	}
	if _, err := load.Run(ctx); err != nil {
		t.Fatal(err)
	}
	found, err := v.Judge(t.Context(), false)
	if err != nil || found.Incomplete != "" || found.Calls == 0 {
		t.Fatalf("%+v, %v; want all of it looked at", found, err)
	}
	return found
}

func TestAGatewayThatIsWrongIsCaught(t *testing.T) {
	for name, planted := range map[string]*planted{
		"right": {}, "twice": {twice: true}, "skips": {skips: true}, "forgets": {forgets: true}, "releases": {releases: true},
		"another": {another: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := verified(t, serve(t, planted.answer), 1)
			if caught := found.ViolationCount > 0; caught != (name != "right") || caught != (len(found.Violations) > 0) {
				t.Errorf("%d violations: %v", found.ViolationCount, found.Violations)
			}
		})
	}
}

func TestAGatewayThatIsRightIsNotAndItsSignersAreNotFreshAnyMore(t *testing.T) {
	g := startGateway(t, "--max-holds=4096")
	if found := verified(t, g.URL, 100); found.ViolationCount != 0 || found.Signers != 64 {
		t.Errorf("%+v", found)
	}
	if _, err := NewRecorder(t.Context(), []string{g.URL}, Access{}, Signers{Count: 100}); !errors.Is(err, ErrUsed) {
		t.Errorf("used signers: %v, want that they are refused", err)
	}
}
