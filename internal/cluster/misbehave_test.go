package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// tally counts how often each op came back.
type tally struct {
	mu   sync.Mutex
	back map[*op]int
	n    atomic.Int64
	all  chan struct{} // receives when an op came back
}

func (s *tally) Return(op *op, v nonce.Verdict) nonce.Waker {
	s.mu.Lock()
	s.back[op]++
	s.mu.Unlock()
	if v == nonce.Answered && op.Err == nil && (len(op.Nonces) != op.Count || op.Nonces[0] != int64(len(op.Signer))) {
		panic("an op has the answer to another")
	}
	s.n.Add(1)
	select {
	case s.all <- struct{}{}:
	default:
	}
	return nil
}

// chaos is a node that answers anything: rightly, twice, out of order, with
// refusals, nonsense, cut links, silence, and to ids that it was never sent.
func chaos(w http.ResponseWriter, r *http.Request) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	if rng.IntN(4) == 0 {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	var late [][]byte
	for {
		_, data, err := ws.ReadMessage()
		if err != nil {
			return
		}
		var in received
		if json.Unmarshal(data, &in) != nil {
			panic("the router sent what is not JSON")
		}
		var p wire.AllocateParams
		json.Unmarshal(in.Params, &p)
		result, _ := json.Marshal(held(p.Signer, int64(len(p.Signer))))
		right := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, result)
		var out [][]byte
		switch n := rng.IntN(1000); {
		case n < 700:
			out = [][]byte{right}
		case n < 800:
			late = append(late, right)
		case n < 850:
			out, late = append(late, right, right), nil
		case n < 900:
			out = [][]byte{fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32011,"message":"fenced: x","data":{"reason":"fenced"}}}`, in.ID)}
		case n < 940: // never answered
		case n < 970: // to whatever is queued or was never there
			out = [][]byte{fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, rng.Uint64N(1<<23), result)}
		case n < 980:
			out = [][]byte{[]byte(`{"jsonrpc":"2.0","id":` + string(in.ID) + `,"result":{"signer":"another"}}`)}
		case n < 985:
			out = [][]byte{[]byte(strings.Repeat("[", 100))}
		case n < 990:
			ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1012, ""), time.Now().Add(time.Second))
			return
		default:
			return
		}
		for _, text := range out {
			if ws.WriteMessage(websocket.TextMessage, text) != nil {
				return
			}
		}
	}
}

// Real sockets and several callers, so that the race detector sees the real
// schedule.
func TestEveryOpComesBackOnceWhateverTheOtherNodeDoes(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(chaos))
	defer srv.Close()
	svc := &tally{back: make(map[*op]int), all: make(chan struct{}, 1)}
	cfg := Config{Forward: true, Queue: 64, Timeout: 100 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond}
	r, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	r.Serve(1, new(sink))
	n := node("a", 1)
	n.URL = srv.URL
	r.Nodes([]lease.Node{n})
	r.InterestChanged(func() (bool, []string) { return true, nil })

	const each = 1000
	var taken sync.Map
	var callers sync.WaitGroup
	for c := range 4 {
		callers.Go(func() {
			for i, n := 0, n; i < each; {
				op := allocation(strings.Repeat("s", 1+(i+c)%7))
				if forwardTo(r, svc, "a", n.URL, op) != nil {
					select { // full, or away: until something changes
					case <-svc.all:
					case <-time.After(time.Millisecond):
					}
					n.Incarnation++ // back from leaving
					r.Nodes([]lease.Node{n})
					continue
				}
				taken.Store(op, nil)
				i++
			}
		})
	}
	callers.Wait()
	expect.Must(t, r.Stop(t.Context()))
	if n := svc.n.Load(); n != 4*each {
		t.Errorf("%d of %d came back", n, 4*each)
	}
	for op, n := range svc.back {
		if _, ours := taken.Load(op); n != 1 || !ours {
			t.Fatalf("an op came back %d times", n)
		}
	}
}
