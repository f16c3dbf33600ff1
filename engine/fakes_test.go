package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/flush"
	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("away")

// world is a store and a Redis as far as a manager sees them. Everything else panics.
type world struct {
	nonce.EngineLedger
	nonce.Fast

	mu       sync.Mutex
	cluster  nonce.EngineCluster
	counts   nonce.EngineCounts
	entered  []nonce.EnteredSigner
	lags     []redisstore.Lag
	storeErr error
	redisErr error
	checkErr error
	onSwitch func()
	settled  map[string]int
	forgot   []string
	copies   map[string]*pair
	leads    bool
	notes    map[string]int // what was counted
	report   ReconcileReport
	lag      lagged
}

// pair is one signer as the store and Redis have it.
type pair struct {
	snap     nonce.Snapshot
	rows     []nonce.Row
	requests []nonce.Remembered
	version  int64 // Redis'
	next     int64
	redis    []nonce.Row
	ids      []nonce.Request
	verdict  nonce.FastVerdict
	err      error // with verdict
	looked   int
	onLook   func(p *pair)
}

var server = nonce.Identity{RunID: "r", ReplID: "h"}

func newWorld() *world {
	return &world{
		cluster: nonce.EngineCluster{State: nonce.StateReliable, Goal: nonce.StateReliable}, leads: true,
		lags: []redisstore.Lag{{Server: server}, {Shard: 1, Server: server}}, settled: make(map[string]int), notes: make(map[string]int), copies: make(map[string]*pair),
	}
}

func (w *world) with(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) EngineState(context.Context) (nonce.EngineCluster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cluster.Now = time.Now()
	return w.cluster, w.storeErr
}

func (w *world) SwitchEngine(_ context.Context, t nonce.SwitchTerm) (nonce.EngineCluster, error) {
	w.mu.Lock()
	if w.onSwitch != nil {
		w.onSwitch()
	}
	defer w.mu.Unlock()
	w.cluster.Now = time.Now()
	switch {
	case w.storeErr != nil:
		return nonce.EngineCluster{}, w.storeErr
	case t.FromGeneration != w.cluster.Generation:
		return w.cluster, nonce.ErrGeneration
	case t.To == nonce.StateReliable && w.counts.Entered > 0:
		return w.cluster, nonce.ErrEntered
	}
	w.cluster.State, w.cluster.Goal, w.cluster.Reason, w.cluster.By, w.cluster.ChangedAt = t.To, t.Goal, t.Reason, t.By, time.Now()
	if t.Goal == "" {
		w.cluster.Goal = t.To
	}
	if t.Observe > 0 {
		w.cluster.ObserveUntil = time.Now().Add(t.Observe)
	}
	w.cluster.Generation++
	return w.cluster, nil
}

func (w *world) AcceptIdentities(_ context.Context, generation int64, ids []nonce.Identity) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if generation != w.cluster.Generation {
		return nonce.ErrGeneration
	}
	w.cluster.Accepted = ids
	return nil
}

func (w *world) FlushShards(context.Context, int) (int, error) { return 2, nil }
func (w *world) FlushLock(context.Context) (nonce.FlushLock, error) {
	return nil, errors.New("nobody asks")
}

func (w *world) EngineCounts(context.Context) (nonce.EngineCounts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts, w.storeErr
}

func (w *world) Entered(_ context.Context, after int64, _ int) ([]nonce.EnteredSigner, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if after > 0 {
		return nil, time.Now(), w.storeErr
	}
	return w.entered, time.Now(), w.storeErr
}

func (w *world) Load(_ context.Context, needs []nonce.Need) ([]nonce.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.copies[needs[0].Signer]
	if p == nil {
		return []nonce.Snapshot{{}}, w.storeErr
	}
	return []nonce.Snapshot{p.snap}, w.storeErr
}

func (w *world) Copy(_ context.Context, id, _ int64, _ string, _ int) (nonce.SignerCopy, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.copies {
		if p.snap.ID == id {
			return nonce.SignerCopy{Snapshot: p.snap, Rows: p.rows, Requests: p.requests}, w.storeErr
		}
	}
	return nonce.SignerCopy{}, w.storeErr
}

func (w *world) Lag(_ context.Context, shards []int) ([]redisstore.Lag, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.redisErr != nil {
		return nil, w.redisErr
	}
	out := make([]redisstore.Lag, 0, len(shards))
	for _, s := range shards {
		out = append(out, w.lags[s])
	}
	return out, nil
}

func (w *world) Probe(context.Context) ([]redisstore.Server, error) {
	return []redisstore.Server{{Identity: server, Took: time.Millisecond}}, w.redisErr
}

func (w *world) Shard(signer string) int { return len(signer) % 2 }
func (w *world) Shards() int             { return 2 }

func (w *world) Forget(_ context.Context, signers []nonce.FastBelief) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range signers {
		w.forgot = append(w.forgot, s.Signer)
	}
	return w.redisErr
}

func (w *world) Summary(_ context.Context, signer string, _ nonce.Identity, _ time.Time) (nonce.Summary, nonce.FastResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.copies[signer]
	if p.looked++; p.onLook != nil {
		p.onLook(p)
	}
	return nonce.Summary{Exists: true, Version: p.version, Next: p.next, Floor: p.snap.Floor}, nonce.FastResult{Verdict: p.verdict, Err: cmp.Or(p.err, errAway)}
}

func (w *world) Rows(_ context.Context, signer string, _ nonce.Identity, _ int64, _ int) ([]nonce.Row, nonce.FastResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copies[signer].redis, nonce.FastResult{}
}

func (w *world) Read(_ context.Context, _ time.Time, reads []nonce.FastRead) []nonce.FastSnapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []nonce.FastSnapshot{{Snapshot: nonce.Snapshot{Requests: w.copies[reads[0].Signer].ids}}}
}

func (w *world) Signers(_ context.Context, f func(string) error) error {
	w.mu.Lock()
	var names []string
	for name := range w.copies {
		names = append(names, name)
	}
	w.mu.Unlock()
	for _, name := range names {
		if err := f(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) WalkSigners(_ context.Context, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error) {
	return w.Entered(context.Background(), after, limit)
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes[what]++
}

func (w *world) counted(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes[what]
}

func (w *world) State(nonce.EngineCluster)    { w.count("state") }
func (w *world) Counts(nonce.EngineCounts)    { w.count("counts") }
func (w *world) Trouble(t nonce.Trouble)      { w.count("trouble " + string(t)) }
func (w *world) Degraded(t nonce.Trouble)     { w.count("degraded " + string(t)) }
func (w *world) Reconciled(r ReconcileReport) { w.with(func() { w.report = r }) }

type lagFigure struct{ *world }

func (w lagFigure) Lag(events int64, oldest time.Duration, dead int64) {
	w.with(func() { w.lag = lagged{events, oldest, dead} })
}

// lagged is what a manager said of the flush.
type lagged struct {
	events int64
	oldest time.Duration
	dead   int64
}

func (w *world) hooks() Hooks {
	return Hooks{
		Settle:  func(s string) bool { w.with(func() { w.settled[s]++ }); return true },
		Prefers: func(s string) bool { return s == "preferred" },
		Leads:   func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.leads },
		Replay:  func(context.Context) (flush.DrainReport, error) { return flush.DrainReport{Settled: 7}, nil },
	}
}

// manage makes a manager of a test that does not act yet.
func manage(t *testing.T, w *world, change ...func(*Config)) *Manager {
	t.Helper()
	cfg := Config{
		Node: "a", RequestRetention: time.Hour, FlushSLA: time.Second, LostAfter: 10 * time.Second, RedisLimit: 2 * time.Second, ScriptLimit: 100 * time.Millisecond,
		LagLimit: 10 * time.Second, RetryLimit: 20, Observe: time.Minute,
	}
	for _, f := range change {
		f(&cfg)
	}
	m, err := New(t.Context(), Deps{
		Store: w, Redis: w, Figures: lagFigure{w}, Log: slog.New(slog.DiscardHandler),
		Check: func(context.Context) ([]string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return []string{"fine"}, w.checkErr
		},
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	hooks := w.hooks()
	m.hooks.Store(&hooks)
	return m
}

// run lets it act until the test ends.
func (w *world) run(t *testing.T, m *Manager) {
	m.Start(t.Context(), w.hooks())
	t.Cleanup(m.Stop)
}

// at is the world in a state.
func at(s, goal nonce.EngineState) *world {
	w := newWorld()
	w.cluster.State, w.cluster.Goal, w.cluster.Generation, w.cluster.Accepted = s, goal, 7, []nonce.Identity{server}
	w.cluster.ChangedAt = time.Now()
	return w
}

func (w *world) state() (s nonce.EngineState, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cluster.State, w.cluster.Reason
}
