package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"noncegate/internal/access/audit"
	"noncegate/nonce/performance"
	"noncegate/wire"
	"noncegate/ws"
)

// Overview is one look at the node that answers, and at what it needs.
type Overview struct {
	AsOf        wire.Time       `json:"asOf"`
	Node        string          `json:"node"`
	Version     string          `json:"version"`
	UptimeMs    int64           `json:"uptimeMs"`
	Mode        string          `json:"mode"`
	Engine      EngineView      `json:"engine"`
	Stages      []StageView     `json:"stages"`
	Refusals    []RefusalView   `json:"refusals"`
	Connections ConnectionsView `json:"connections"`
	SlowClients []SlowClient    `json:"slowClients"`
	Chains      []ChainView     `json:"chains"`
	Store       ReachView       `json:"store"`
	Redis       *ReachView      `json:"redis,omitempty"`
	Findings    []Finding       `json:"findings"`
}

// EngineView is the engine in a few words.
type EngineView struct {
	State     performance.State `json:"state"`
	Goal      performance.State `json:"goal"`
	Available bool              `json:"available"`
	Why       string            `json:"why,omitempty"`
	Reason    string            `json:"reason,omitempty"`
}

// StageView is a stage of a request's way, by the last complete interval of ws_perf, and how full it is now.
type StageView struct {
	Name     string `json:"name"` // admission, worker, commit, encode, postDb or write
	RatePerS int64  `json:"ratePerS"`
	P50Ms    Number `json:"p50Ms"`
	P99Ms    Number `json:"p99Ms"`
	Fill     int64  `json:"fill"`
	Capacity int64  `json:"capacity,omitempty"` // 0: there is no queue
}

// Number is a number that need not be whole.
type Number float64

// RefusalView is how often requests were refused at a stage, or for a reason, since the start.
type RefusalView struct {
	Stage  string `json:"stage,omitempty"`
	Reason string `json:"reason,omitempty"`
	Total  int64  `json:"total"`
	PerS   Number `json:"perS"` // since the look before
}

// ConnectionsView is the connections of clients.
type ConnectionsView struct {
	Open int64 `json:"open"`
	Max  int64 `json:"max"`
	Slow int64 `json:"slow"` // whose clients do not read
}

// SlowClient is a client that does not read what it is sent.
type SlowClient struct {
	Principal   string `json:"principal,omitempty"`
	Remote      string `json:"remote"`
	QueuedBytes int64  `json:"queuedBytes"`
	Paused      bool   `json:"paused"`
}

// ChainView is a chain with its nodes.
type ChainView struct {
	Chain string          `json:"chain"`
	Nodes []ChainNodeView `json:"nodes"`
}

// ChainNodeView is a node of a chain.
type ChainNodeView struct {
	Name            string     `json:"name"` // without a key of its URL
	Up              bool       `json:"up"`
	Head            int64      `json:"head"`
	LagBlocks       int64      `json:"lagBlocks"`
	BackingOffUntil *wire.Time `json:"backingOffUntil,omitempty"`
	Error           string     `json:"error,omitempty"`
}

// ReachView is whether a server is reached.
type ReachView struct {
	Kind      string `json:"kind"`
	OK        bool   `json:"ok"`
	LatencyMs int64  `json:"latencyMs"`
	Error     string `json:"error,omitempty"`
}

// LookEvery is how often the gateway is looked at for overviews, however many ask: the age of an Overview.
const LookEvery = time.Second

// lookTime bounds one look.
const lookTime = 2 * time.Second

// looked is the last look. Whoever comes while it is new has the same.
type looked struct {
	mu       sync.Mutex // guards what follows, and is held while it is looked
	at       time.Time
	is       Overview
	refusals map[RefusalView]int64 // totals, by the names
	counted  time.Time
	unknown  map[string]time.Time // signers with unknown holds in the last look, and since which look; as many as findings name
}

func (a *Server) overview(ctx context.Context, _ None) (Overview, error) {
	l := &a.looked
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.at.IsZero() && time.Since(l.at) < LookEvery {
		return l.is, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	v := Overview{
		AsOf: wire.Time(time.Now()), Node: a.cfg.Node, Version: a.cfg.Version, UptimeMs: time.Since(a.begun).Milliseconds(), Mode: a.cfg.Mode,
		Chains: []ChainView{}, SlowClients: []SlowClient{},
	}
	if a.cfg.ChainsOf != nil {
		v.Chains = append(v.Chains, a.cfg.ChainsOf()...)
	}
	v.Store = reach(a.cfg.Store.Name(), func() error { return a.cfg.Service.Ready(ctx) })
	if a.cfg.Redis != nil {
		v.Redis = new(reach("redis", func() error { _, err := a.cfg.Redis.Check(ctx); return err }))
	}
	engine := a.engineNow()
	v.Engine = EngineView{engine.State, engine.Goal, engine.Available, engine.Why, engine.Reason}
	gauges := a.gather()
	v.Stages, v.Refusals = a.stages(gauges), l.since(gauges.refusals)
	v.Connections = ConnectionsView{gauges.of["connections"], gauges.of["connections_max"], gauges.of["connections_paused"]}
	v.SlowClients = append(v.SlowClients, slowest(a.connected())...)
	v.Findings = a.findings(ctx, &engine, &v)
	l.at, l.is = time.Now(), v
	return v, nil
}

func reach(kind string, look func() error) ReachView {
	began := time.Now()
	err := look()
	r := ReachView{Kind: kind, OK: err == nil, LatencyMs: time.Since(began).Milliseconds()}
	if err != nil {
		r.Error = sentence(err)
	}
	return r
}

// mostSlow bounds the slow clients that are named.
const mostSlow = 5

// slowest are the clients that do not read, those with most that waits first.
func slowest(all []ws.Connection) (list []SlowClient) {
	for _, c := range all {
		if c.Paused {
			list = append(list, SlowClient{c.Principal, c.Remote, c.Queued, c.Paused})
		}
	}
	slices.SortFunc(list, func(a, b SlowClient) int { return cmp.Compare(b.QueuedBytes, a.QueuedBytes) })
	return list[:min(len(list), mostSlow)]
}

// gauges are what the metrics say now: numbers without labels by their names, and counters of refusals.
type gauges struct {
	of       map[string]int64
	refusals []RefusalView
}

// gather reads the metrics, so that nothing is counted twice.
func (a *Server) gather() gauges {
	g := gauges{of: map[string]int64{}}
	families, _ := a.cfg.Metrics.Gather() // what could be read is there beside an error
	for _, f := range families {
		name := f.GetName()
		if len(name) <= len("noncegate_") {
			continue
		}
		name = name[len("noncegate_"):]
		for _, m := range f.GetMetric() {
			switch labels := m.GetLabel(); {
			case name == "rejected_total" && len(labels) == 1:
				g.refusals = append(g.refusals, RefusalView{Stage: labels[0].GetValue(), Total: int64(m.GetCounter().GetValue())})
			case name == "refused_total" && len(labels) == 1:
				g.refusals = append(g.refusals, RefusalView{Reason: labels[0].GetValue(), Total: int64(m.GetCounter().GetValue())})
			case len(labels) == 0 && m.GetGauge() != nil:
				g.of[name] = int64(m.GetGauge().GetValue())
			}
		}
	}
	return g
}

// since are the refusals that there were, with their rates since the look before.
func (l *looked) since(all []RefusalView) []RefusalView {
	list, seen := []RefusalView{}, make(map[RefusalView]int64, len(all))
	for _, r := range all {
		name := RefusalView{Stage: r.Stage, Reason: r.Reason}
		if seen[name] = r.Total; r.Total == 0 {
			continue
		}
		if s := time.Since(l.counted).Seconds(); l.refusals != nil && s > 0 {
			r.PerS = Number(float64(r.Total-l.refusals[name]) / s)
		}
		list = append(list, r)
	}
	l.refusals, l.counted = seen, time.Now()
	return list
}

// stages are those of a request's way, in their order.
func (a *Server) stages(g gauges) []StageView {
	st := a.cfg.Stats()
	stage := func(name string, f wire.Figure, fill, capacity string) StageView {
		v := StageView{Name: name, P50Ms: Number(f.P50), P99Ms: Number(f.P99), Fill: g.of[fill], Capacity: g.of[capacity]}
		if st.IntervalMs > 0 {
			v.RatePerS = f.Count * 1000 / st.IntervalMs
		}
		return v
	}
	return []StageView{
		stage("admission", wire.Figure{Count: st.WorkerQueueMs.Count}, "inflight_slots_used", "inflight_slots"),
		stage("worker", st.WorkerQueueMs, "worker_slots_used", "worker_slots"),
		stage("commit", st.CommitMs, "", ""),
		stage("encode", st.EncodeQueueMs, "encode_slots_used", "encode_slots"),
		stage("postDb", st.PostDBQueueMs, "postdb_slots_used", "postdb_slots"),
		stage("write", st.WriteQueueMs, "outbound_messages", ""),
	}
}

// AuditQuestion is which lines of the audit to show.
type AuditQuestion struct {
	After string `json:"after,omitempty"` // only lines of a higher number
	Limit string `json:"limit,omitempty"` // 1 to 1000; "": 100
}

// AuditLine is a line of the audit.
type AuditLine struct {
	Seq        int64     `json:"seq"`
	At         wire.Time `json:"at"`
	Event      string    `json:"event"`
	Principal  string    `json:"principal,omitempty"`
	Credential string    `json:"credential,omitempty"`
	Address    string    `json:"address,omitempty"`
	Method     string    `json:"method,omitempty"`
	Signer     string    `json:"signer,omitempty"`
	Nonce      *int64    `json:"nonce,omitempty"`
	Outcome    string    `json:"outcome,omitempty"`
	Right      string    `json:"right,omitempty"` // that was missing
	Before     string    `json:"before,omitempty"`
	After      string    `json:"after,omitempty"`
	Why        string    `json:"why,omitempty"`
}

// AuditTail is the last lines of the audit of the node that answers, which keeps 1,000.
type AuditTail struct {
	Node   string      `json:"node"`
	Lines  []AuditLine `json:"lines"`
	Oldest int64       `json:"oldest"` // number of the oldest line that is kept; 0: none is
}

func (a *Server) listAudit(_ context.Context, q AuditQuestion) (t AuditTail, err error) {
	limit, err := limitOf(q.Limit, 100)
	if err != nil {
		return t, err
	}
	after, err := strconv.ParseInt(cmp.Or(q.After, "0"), 10, 64)
	if err != nil || after < 0 {
		return t, &badQuestion{why: "after: must be a whole number, 0 or higher"}
	}
	lines, oldest := a.cfg.Audit.Tail(after, limit)
	t = AuditTail{Node: a.cfg.Node, Lines: []AuditLine{}, Oldest: oldest}
	for i := range lines {
		t.Lines = append(t.Lines, lineOf(&lines[i]))
	}
	return t, nil
}

func lineOf(l *audit.Line) AuditLine {
	v := AuditLine{
		Seq: l.Seq, At: wire.Time(l.At), Event: string(l.Event), Principal: l.Principal, Credential: l.Credential, Address: l.Address,
		Method: l.Method, Signer: l.Signer, Outcome: l.Outcome, Right: l.Right, Before: l.Before, After: l.After, Why: l.Why,
	}
	if l.HasNonce {
		v.Nonce = &l.Nonce
	}
	return v
}

// Setting is a setting in force. A secret has no value.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	From   string `json:"from"` // flag, environment, file or default
	Secret bool   `json:"secret,omitempty"`
}

// SettingList is all of them.
type SettingList struct {
	Node     string    `json:"node"`
	Settings []Setting `json:"settings"`
}

func (a *Server) listSettings(context.Context, None) (SettingList, error) {
	return SettingList{a.cfg.Node, append([]Setting{}, a.cfg.Settings...)}, nil
}

// DrainOrder ends a node in order.
type DrainOrder struct {
	Node string `json:"node"` // the one that is asked; another one is refused
	Because
}

// DrainedNode is the node that ends.
type DrainedNode struct {
	Node string `json:"node"`
	Foreseen
}

func (a *Server) drainNode(_ context.Context, q DrainOrder) (d DrainedNode, err error) {
	if q.Node != a.cfg.Node {
		return d, &badQuestion{"node: this is " + strconv.Quote(a.cfg.Node) + "; ask the node itself that is to end", http.StatusConflict}
	}
	heirs := 0
	for _, n := range a.cfg.Nodes() {
		if n.Live && n.Node != a.cfg.Node {
			heirs++
		}
	}
	d.Node = q.Node
	would := "node " + q.Node + " takes no new connection, gives its shards to " + strconv.Itoa(heirs) +
		" other live nodes, and its process ends"
	if heirs == 0 {
		would = "node " + q.Node + " answers what it has taken, and its process ends; no other node is live that could serve its signers"
	}
	d.foresee(q.Because, nil, "live", "draining", would)
	switch {
	case q.DryRun:
		return d, nil
	case a.cfg.Drain == nil:
		return d, &notDone{errors.New("this node cannot be ended from here")}
	}
	a.cfg.Log.Info("the node ends because an operator wants it")
	a.cfg.Drain()
	return d, nil
}
