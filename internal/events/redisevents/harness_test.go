//go:build unix

package redisevents

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/redisdb"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }

// node is a publisher and a listener, with a sink of its own.
type node struct {
	testing.TB
	db *redisdb.DB
	p  *Publisher
	l  *Listener

	mu     sync.Mutex // guards what follows
	told   map[string][]int64
	missed map[string]int64 // by signer that somebody asks about
	want   []string
}

// begin starts a node of that database at the Redis of that URL.
func begin(t testing.TB, url, database, name string) *node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	db, err := redisdb.Open(ctx, url, log)
	expect.Must(t, err)
	n := &node{TB: t, db: db, told: make(map[string][]int64), missed: make(map[string]int64)}
	n.p = NewPublisher(db.Client(), Config{Database: database, Node: name}, NewMetrics(prometheus.NewRegistry()), log)
	n.l = Listen(db, n.p, n, log)
	t.Cleanup(n.end)
	return n
}

func (n *node) end() {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	for _, err := range []error{n.l.Stop(ctx), n.p.Stop(ctx), n.l.Stop(ctx), n.p.Stop(ctx)} {
		expect.Check(n, err)
	}
	_ = n.db.Close() // a second time it says that it is closed
}

// Remote implements Sink.
func (n *node) Remote(signer string, event []byte, missed int64) {
	var e wire.Event
	if err := wire.Unmarshal(event, &e); err != nil || e.Signer != signer || missed != 0 {
		n.Errorf("%s %s %d: %v", signer, event, missed, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told[signer] = append(n.told[signer], e.Version)
}

// MissedOf implements Sink.
func (n *node) MissedOf(lost int64, of func(string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.want {
		if of(s) {
			n.missed[s] += lost
		}
	}
}

// asks makes the node's clients want these signers, and waits.
func (n *node) asks(signers ...string) {
	n.Helper()
	n.mu.Lock()
	n.want = signers
	n.mu.Unlock()
	n.l.InterestChanged(func() (bool, []string) { return false, signers })
	ctx, cancel := context.WithTimeout(n.Context(), wait.Patience)
	defer cancel()
	n.l.Await(ctx)
	if ctx.Err() != nil {
		n.Fatal("no subscription")
	}
}

// commits publishes versions of a signer as the hub does.
func (n *node) commits(signer string, from, to int64) {
	n.Helper()
	for v := from; v <= to; v++ {
		if n.p.Wanted(signer) {
			n.p.Relay(signer, encoded(signer, v))
		}
	}
}

func (n *node) of(signer string) []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.told[signer])
}

func (n *node) missedOf(signer string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.missed[signer]
}

// has waits until the last version of a signer has come, and returns all.
func (n *node) has(signer string, last int64) []int64 {
	n.Helper()
	wait.Until(n, fmt.Sprintf("version %d of %s", last, signer), func() bool {
		got := n.of(signer)
		return len(got) > 0 && got[len(got)-1] == last
	})
	return n.of(signer)
}

// ascending reports whether nothing came twice, or before what was earlier.
func ascending(versions []int64) bool {
	for i := 1; i < len(versions); i++ {
		if versions[i] <= versions[i-1] {
			return false
		}
	}
	return true
}
