package interop

import (
	"fmt"
	"testing"

	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/lab/pgtest"
)

// TestAProgramMayTalkToAnyNode: two gateways over one PostgreSQL look like one to
// clients that know nothing of nodes.
func TestAProgramMayTalkToAnyNode(t *testing.T) {
	t.Parallel()
	pg, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	store := "--store=" + pg.NewDatabase(t)
	a := launch(t, "127.0.0.1:0", []string{store, "--node-id=a"})
	b := launch(t, "127.0.0.1:0", []string{store, "--node-id=b"})
	nodes := []*rpc.Client{a.dial(), b.dial()}
	for _, client := range nodes {
		awaitNodes(t, client, 2)
	}

	events := [2]chan event{make(chan event, 16), make(chan event, 16)}
	var subs [2]*rpc.ClientSubscription
	for i, client := range nodes {
		subs[i] = subscribe(t, client, "nonce", events[i])
	}
	// One account, asked for at both in turn; wherever it is owned.
	for i := range uint64(6) {
		h := call[hold](t, nodes[i%2], "nonce_allocate", object{"signer": signer, "requestId": fmt.Sprint("order-", i)})
		if h != (hold{Nonce: i, Attempt: 1}) {
			t.Errorf("allocation %d is %+v", i, h)
		}
		if again := call[hold](t, nodes[(i+1)%2], "nonce_allocate", object{"signer": signer, "requestId": fmt.Sprint("order-", i)}); again != h {
			t.Errorf("the same request at the other node got %+v, want %+v", again, h)
		}
		call[any](t, nodes[(i+1)%2], "nonce_markUsed", signer, h.Nonce, txHash)
		for j := range nodes {
			for _, what := range []string{"allocated", "used"} {
				if e := next(t, subs[j], events[j]); e.Type != what || e.Nonce != i {
					t.Errorf("node %d told of %+v, want %s %d", j, e, what, i)
				}
			}
		}
	}
	// Accounts of both nodes, once the second has its shards, in one batch.
	batch := make([]rpc.BatchElem, 12)
	owners := map[string]bool{}
	both := eventually(func() bool {
		for i := range batch {
			owners[call[struct{ Owner string }](t, nodes[1], "nonce_status", fmt.Sprint("account-", i)).Owner] = true
		}
		return owners["a"] && owners["b"]
	})
	if !both {
		t.Fatalf("the owners are %v", owners)
	}
	for i := range batch {
		batch[i] = rpc.BatchElem{Method: "nonce_allocate", Args: []any{fmt.Sprint("account-", i)}, Result: new(hold)}
	}
	if err := nodes[0].BatchCallContext(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, e := range batch {
		if h := e.Result.(*hold); e.Error != nil || *h != (hold{Attempt: 1}) {
			t.Errorf("element %d: %+v, %v", i, h, e.Error)
		}
	}

	// The first goes away; the other has everything.
	a.stop()
	for i := range uint64(6) {
		if h := call[hold](t, nodes[1], "nonce_allocate", fmt.Sprint("account-", i)); h != (hold{Nonce: 1, Attempt: 1}) {
			t.Errorf("account %d after the node left: %+v", i, h)
		}
	}
	if got, want := call[status](t, nodes[1], "nonce_status", signer), (status{Next: 6, Consumed: 6}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// awaitNodes asks until the node knows so many live ones.
func awaitNodes(t *testing.T, client *rpc.Client, n int) {
	t.Helper()
	live := 0
	known := eventually(func() bool {
		live = 0
		for _, node := range call[struct{ Nodes []struct{ State string } }](t, client, "gateway_info").Nodes {
			if node.State == "live" {
				live++
			}
		}
		return live == n
	})
	if !known {
		t.Fatalf("%d nodes are live, want %d", live, n)
	}
}
