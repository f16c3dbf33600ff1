package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"noncegate/client"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

const (
	maxJobItems = 100_000
	maxJobBytes = 16 << 20
	keptJobs    = 10
	countTime   = time.Minute // for finding what a job is about
)

// The kinds of jobs.
const (
	releaseUnknown = "releaseUnknown"
	raiseFloors    = "floors"
)

// JobOrder is the same act on many signers.
type JobOrder struct {
	Kind      string     `json:"kind"`                // releaseUnknown or floors
	Principal string     `json:"principal,omitempty"` // releaseUnknown: who holds them; "" where clients have no names
	OlderThan string     `json:"olderThan,omitempty"` // releaseUnknown: how long ago their signers were written last at least, such as 1h
	Floors    []NewFloor `json:"floors,omitempty"`    // floors
	Because
}

// NewFloor is the floor of a signer.
type NewFloor struct {
	Signer string `json:"signer"`
	Floor  int64  `json:"floor"`
}

// BegunJob is a job with what it has to do.
type BegunJob struct {
	ID    string `json:"id,omitempty"`
	Count int    `json:"count"`
	Foreseen
}

// JobView is a job.
type JobView struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Principal string     `json:"principal"` // who began it
	Reason    string     `json:"reason"`
	State     string     `json:"state"` // running, done, cancelled or stopped
	Count     int        `json:"count"`
	Done      int        `json:"done"`
	Failed    int        `json:"failed"`
	Left      int        `json:"left"`
	StartedAt wire.Time  `json:"startedAt"`
	EndedAt   *wire.Time `json:"endedAt,omitempty"`
	Cancelled bool       `json:"cancelled,omitempty"`
	Why       string     `json:"why,omitempty"` // it was stopped
}

// JobList is the jobs of the node that answers, the newest first, 10 at most.
type JobList struct {
	Node string    `json:"node"`
	Jobs []JobView `json:"jobs"`
}

// JobQuestion is which job to show.
type JobQuestion struct {
	ID    string `json:"id"`
	After string `json:"after,omitempty"` // only outcomes behind so many
	Limit string `json:"limit,omitempty"` // 1 to 1000; "": 1000
}

// JobOutcome is what became of one item.
type JobOutcome struct {
	Signer  string `json:"signer"`
	Nonce   *int64 `json:"nonce,omitempty"`
	Floor   *int64 `json:"floor,omitempty"`
	Outcome string `json:"outcome"` // done, consumed, refused or unknown
	Error   string `json:"error,omitempty"`
}

// JobResult is a job with the outcomes of what was done so far, in their order.
type JobResult struct {
	Job      JobView      `json:"job"`
	Outcomes []JobOutcome `json:"outcomes"`
}

// CancelOrder has a job begin nothing more.
type CancelOrder struct {
	ID string `json:"id"`
	Because
}

// CancelledJob is the job as it was then.
type CancelledJob struct {
	Job JobView `json:"job"`
	Foreseen
}

// job is one act on many signers, under way or ended.
type job struct {
	view     JobView
	outcomes []JobOutcome
	cancel   context.CancelFunc
}

// jobs are those of a node, in the order in which they began. One runs at a time.
type jobs struct {
	mu      sync.Mutex // guards what follows, and what is in each
	all     []*job
	busy    bool // one is counted, or runs
	stopped bool
	running sync.WaitGroup
}

func newJobs() *jobs { return &jobs{} }

// item is one act of a job.
type item struct {
	signer string
	nonce  int64 // or the floor
	hold   int64 // attempt
}

// take is for the one who begins a job; give ends it.
func (j *jobs) take() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.stopped:
		return &notDone{nonce.ErrDraining}
	case j.busy:
		return &badQuestion{"conflict: a job runs at this node, and only one does at a time; wait for it, or cancel it", http.StatusConflict}
	}
	j.busy = true
	return nil
}

func (j *jobs) give() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy = false
}

// stop ends the job that runs, after the item that is under way.
func (j *jobs) stop() {
	j.mu.Lock()
	j.stopped = true
	for _, one := range j.all {
		one.cancel()
	}
	j.mu.Unlock()
	j.running.Wait()
}

func (j *jobs) find(id string) (*job, error) {
	i := slices.IndexFunc(j.all, func(one *job) bool { return one.view.ID == id })
	if i < 0 {
		return nil, &badQuestion{fmt.Sprintf("id: %.40q is none of the last %d jobs of this node", id, keptJobs), http.StatusNotFound}
	}
	return j.all[i], nil
}

func (a *Server) beginJob(ctx context.Context, q JobOrder) (b BegunJob, err error) {
	by, _ := callerOf(ctx)
	if err := a.jobs.take(); err != nil {
		return b, err
	}
	items, would, err := a.itemsOf(ctx, by, q)
	if err == nil && len(items) > maxJobItems {
		err = &badQuestion{why: fmt.Sprintf("a job has at most %d items; this one would have more", maxJobItems)}
	}
	if b.Count = len(items); err != nil || q.DryRun || b.Count == 0 {
		a.jobs.give()
		b.foresee(q.Because, nil, "", would, would)
		return b, err
	}
	b.foresee(q.Because, nil, "", would, would)
	b.ID = a.start(ctx, by, q, items)
	return b, nil
}

// itemsOf finds out what a job is about, and whether the caller may do it to all signers.
func (a *Server) itemsOf(ctx context.Context, by caller, q JobOrder) (items []item, would string, err error) {
	switch q.Kind {
	case releaseUnknown:
		if err := by.needs(access.RightMarkAny); err != nil {
			return nil, "", err
		}
		olderThan, bad := time.ParseDuration(q.OlderThan)
		switch {
		case bad != nil || olderThan < 0:
			return nil, "", &badQuestion{why: fmt.Sprintf("olderThan: %.40q must be a duration, such as 1h", q.OlderThan)}
		case q.Principal == "" && a.cfg.Gate != nil:
			return nil, "", &badQuestion{why: "principal: is missing; it must be who holds them"}
		case len(q.Floors) > 0:
			return nil, "", &badQuestion{why: "floors: are none of a releaseUnknown"}
		}
		items, err = a.unknownHolds(ctx, q.Principal, time.Now().Add(-olderThan))
		return items, fmt.Sprintf("%d unknown holds of %q, of signers that were written last %v ago or earlier, are released",
			len(items), q.Principal, olderThan), err
	case raiseFloors:
		if err := by.needs(access.RightAdmin); err != nil {
			return nil, "", err
		}
		for i, f := range q.Floors {
			if _, bad := nonce.ParseSigner(f.Signer); bad != nil || f.Floor < 0 {
				why := fmt.Sprintf("floors[%d]: %.130q with %d is no signer with a floor of 0 or higher", i, f.Signer, f.Floor)
				return nil, "", &badQuestion{why: why}
			}
			items = append(items, item{signer: f.Signer, nonce: f.Floor})
		}
		if len(items) == 0 {
			return nil, "", &badQuestion{why: "floors: is missing; it must be signers with their floors"}
		}
		return items, fmt.Sprintf("the floors of %d signers are raised", len(items)), nil
	}
	return nil, "", &badQuestion{why: fmt.Sprintf("kind: %.40q must be %s or %s", q.Kind, releaseUnknown, raiseFloors)}
}

// unknownHolds are those of a principal, of signers that were written last before a time, in the order of the signers.
func (a *Server) unknownHolds(ctx context.Context, principal string, before time.Time) (items []item, err error) {
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	for q := (nonce.SignersQuery{Filter: nonce.UnknownSigners, Limit: MaxSignerList}); ; {
		rows, err := a.cfg.Store.Signers(ctx, q)
		if err != nil {
			return nil, &notDone{err}
		}
		for i := range rows {
			q.After = rows[i].Signer
			if items, err = a.unknownOf(ctx, rows[i].Signer, principal, before, items); err != nil || len(items) > maxJobItems {
				return items, err
			}
		}
		if len(rows) < q.Limit {
			return items, nil
		}
	}
}

func (a *Server) unknownOf(ctx context.Context, signer, principal string, before time.Time, items []item) ([]item, error) {
	return asClient(ctx, a, false, func(ctx context.Context, gateway *client.Client) ([]item, error) {
		for q := (wire.ListParams{Signer: signer, Status: wire.StatusUnknown, Limit: wire.MaxListLimit}); ; {
			page, err := gateway.List(ctx, q)
			if err != nil {
				return items, err
			}
			for _, h := range page.Allocations {
				// heldUntil of an unknown hold is when the gateway decides about it next, and updatedAt is its signer's: when it ended is not stored.
				if h.Holder == principal && h.UpdatedAt != nil && time.Time(*h.UpdatedAt).Before(before) {
					items = append(items, item{signer, h.Nonce, h.Attempt})
				}
				q.From = h.Nonce + 1
			}
			if int64(len(page.Allocations)) < q.Limit {
				return items, nil
			}
		}
	})
}

// start runs a job in the background, as the caller. It ends when the caller's credential does.
func (a *Server) start(ctx context.Context, by caller, q JobOrder, items []item) (id string) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it ends the process rather than to fail
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	one := &job{cancel: cancel, view: JobView{
		ID: hex.EncodeToString(random[:]), Kind: q.Kind, Principal: by.principal(), Reason: q.Reason, State: "running", Count: len(items),
		Left: len(items), StartedAt: wire.Time(time.Now()),
	}}
	j := a.jobs
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all = append(j.all, one); len(j.all) > keptJobs {
		j.all = slices.Delete(j.all, 0, len(j.all)-keptJobs)
	}
	if j.stopped {
		cancel()
	}
	j.running.Go(func() {
		defer cancel()
		a.work(ctx, by, one, q, items)
	})
	return one.view.ID
}

func (a *Server) work(ctx context.Context, by caller, one *job, q JobOrder, items []item) {
	state, why := "done", ""
	for _, it := range items {
		if ended := by.session.Ended(time.Now()); ended != nil {
			state, why = "stopped", ended.Error()
			break
		}
		if ctx.Err() != nil {
			state = "cancelled"
			break
		}
		out := a.doItem(ctx, q, it)
		a.jobs.mu.Lock()
		one.outcomes = append(one.outcomes, out)
		if one.view.Left--; out.Error != "" {
			one.view.Failed++
		} else {
			one.view.Done++
		}
		a.jobs.mu.Unlock()
	}
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	one.view.State, one.view.Why, one.view.EndedAt = state, why, new(wire.Time(time.Now()))
	one.view.Cancelled = state == "cancelled"
	a.jobs.busy = false
	a.cfg.Log.Info("a job has ended", "job", one.view.ID, "kind", one.view.Kind, "principal", one.view.Principal, "state", state,
		"done", one.view.Done, "failed", one.view.Failed, "left", one.view.Left)
}

// doItem does one of the acts, by the act that is for one signer. An item that was begun is not cancelled.
func (a *Server) doItem(ctx context.Context, q JobOrder, it item) (out JobOutcome) {
	ctx = context.WithoutCancel(ctx)
	out = JobOutcome{Signer: it.signer, Outcome: "done"}
	var err error
	if q.Kind == raiseFloors {
		out.Floor = &it.nonce
		_, err = a.raiseFloor(ctx, FloorOrder{Signer: it.signer, Floor: it.nonce, Because: Because{Reason: q.Reason}})
	} else {
		out.Nonce = &it.nonce
		var is MarkedNonce
		is, err = a.releaseNonce(ctx, ReleaseOrder{MarkOrder: MarkOrder{it.signer, it.nonce, it.hold, Because{Reason: q.Reason}}})
		if err == nil && is.Status != wire.StatusReleased {
			out.Outcome = strings.ToLower(is.Status)
		}
	}
	if err != nil {
		_, said := refusalOf(err)
		out.Outcome, out.Error = "refused", said.Error
		if said.Outcome != "" {
			out.Outcome = said.Outcome
		}
	}
	return out
}

func (a *Server) listJobs(context.Context, None) (JobList, error) {
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	list := JobList{Node: a.cfg.Node, Jobs: []JobView{}}
	for _, one := range slices.Backward(a.jobs.all) {
		list.Jobs = append(list.Jobs, one.view)
	}
	return list, nil
}

func (a *Server) showJob(_ context.Context, q JobQuestion) (r JobResult, err error) {
	limit, err := limitOf(q.Limit, MaxSignerList)
	if err != nil {
		return r, err
	}
	after := 0
	if q.After != "" {
		if n, err := fmt.Sscan(q.After, &after); n != 1 || err != nil || after < 0 {
			return r, &badQuestion{why: "after: must be a whole number, 0 or higher"}
		}
	}
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	one, err := a.jobs.find(q.ID)
	if err != nil {
		return r, err
	}
	from := min(after, len(one.outcomes))
	r = JobResult{one.view, slices.Clone(one.outcomes[from:min(from+limit, len(one.outcomes))])}
	if r.Outcomes == nil {
		r.Outcomes = []JobOutcome{}
	}
	return r, nil
}

// cancelJob is for whoever began the job, and for others with the right admin.
func (a *Server) cancelJob(ctx context.Context, q CancelOrder) (c CancelledJob, err error) {
	by, _ := callerOf(ctx)
	a.jobs.mu.Lock()
	defer a.jobs.mu.Unlock()
	one, err := a.jobs.find(q.ID)
	if err != nil {
		return c, err
	}
	if one.view.Principal != by.principal() {
		if err := by.needs(access.RightAdmin); err != nil {
			return c, err
		}
	}
	c.Job = one.view
	if one.view.State != "running" {
		return c, &badQuestion{fmt.Sprintf("conflict: the job is %s", one.view.State), http.StatusConflict}
	}
	c.foresee(q.Because, nil, "running", "cancelled", fmt.Sprintf("the job ends with %d items that are not begun", one.view.Left))
	if !q.DryRun {
		one.cancel()
	}
	return c, nil
}
