//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
)

// The faults of one round. A round may have one of each row.
const (
	none = ""

	fullDisk   = "full disk"   // the disk takes nothing more
	failedSync = "failed sync" // the disk fails

	kill = "kill"
	stop = "stop" // SIGTERM, and the gateway ends in the orderly way

	powerLoss = "power loss" // anything that was not synced may be lost, in any order
	tornTail  = "torn tail"  // the end of what was not synced is lost, at any byte
)

// fault is what befalls a gateway in one round, in this order.
type fault struct{ trouble, end, loss string }

// String names it.
func (f fault) String() string {
	s := f.trouble
	if s == none {
		s = f.end
	}
	if f.loss != none {
		s += ", " + f.loss
	}
	return s
}

// anyFault draws one.
func anyFault(r *rand.Rand) fault {
	f := fault{end: kill, loss: []string{none, none, powerLoss, powerLoss, powerLoss, tornTail, tornTail}[r.IntN(7)]}
	switch n := r.IntN(10); {
	case n < 1:
		f.end = stop
	case n < 3:
		f.trouble = fullDisk
	case n < 5:
		f.trouble = failedSync
	}
	return f
}

// run is one history while it happens. It belongs to one goroutine, and the
// clients to theirs during a round.
type run struct {
	cfg     config
	launch  launcher
	dir     string // of everything about it
	began   time.Time
	chance  *rand.Rand
	disk    *disk
	clients []*client
	told    atomic.Int64 // calls that happened
	result  *result
}

const (
	clientCount = 6
	// maxPerRound bounds the calls that happen before something breaks.
	maxPerRound = 600
	// minAcknowledged is how many a history must have. The calm round makes up
	// for what is missing.
	minAcknowledged = 1000
	loadTimeout     = 30 * time.Second
	endTimeout      = 20 * time.Second // of an orderly end
	// settling is how long after the load a calm gateway has had time to end the
	// holds of a second.
	settling = 2*time.Second + grace
	// grace is for how long after its deadline nobody ends a hold.
	grace = time.Second
	// maxOverdue is how long one may be overdue when all is settled.
	maxOverdue = grace + 900*time.Millisecond
)

func newRun(cfg config, program string, seed uint64, dir string) *run {
	r := &run{
		cfg: cfg, dir: dir, began: time.Now(), chance: rand.New(rand.NewPCG(seed, 0)), result: &result{Seed: seed},
		launch: launcher{program: program, store: filepath.Join(dir, "store", database), mode: "worker-queue", control: filepath.Join(dir, "control")},
	}
	if r.chance.IntN(3) == 0 {
		r.launch.mode = "basic"
	}
	r.disk = newDisk(nil, r.chance)
	for i := range clientCount {
		r.clients = append(r.clients, newClient(i+1, seed))
	}
	return r
}

// history goes through a round for each fault and a calm one at the end. It stops
// early at a violation. Its error is one of the harness, not a verdict.
func (r *run) history(ctx context.Context, faults []fault) (err error) {
	if err := os.MkdirAll(filepath.Dir(r.launch.store), 0o700); err != nil {
		return err
	}
	if r.launch.room, err = guarded.Open("torture-sqlite", nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.launch.room.Close()) }()
	for n, f := range faults {
		r.result.Faults = append(r.result.Faults, f.String())
		if err := r.round(ctx, n, f); err != nil {
			return fmt.Errorf("round %d (%v): %w", n, f, err)
		}
		if len(r.result.Violations) > 0 {
			return r.save(nil)
		}
	}
	if err := r.calm(ctx, len(faults)); err != nil {
		return fmt.Errorf("calm round: %w", err)
	}
	return nil
}

// round starts a gateway on what the last round left, lets the clients work, does
// what the fault says, and judges what is left.
func (r *run) round(ctx context.Context, n int, f fault) error {
	g, err := r.begin(ctx, n)
	if err != nil || g == nil {
		return err
	}
	endLoad, err := r.load(ctx, g, n)
	if err != nil {
		return errors.Join(err, g.Kill())
	}
	r.await(ctx, r.told.Load()+r.chance.Int64N(maxPerRound), fmt.Sprintf("round %d", n))
	err = errors.Join(r.strike(ctx, g, f), g.Kill())
	endLoad()
	if err := errors.Join(err, r.keepLog(g, n)); err != nil {
		return err
	}
	for _, alarm := range gateway.Alarms(g.Log(), alarming) {
		r.violation(history.Violation{Rule: history.Alarm, Text: alarm}, fmt.Sprintf("round %d", n))
	}
	r.judgeAnswers(n)
	return r.aftermath(ctx, n, f)
}

// keepLog puts the log of a gateway where what is kept of a failure is.
func (r *run) keepLog(g *gateway.Gateway, n int) error {
	return os.WriteFile(filepath.Join(r.dir, fmt.Sprintf("round-%d.log", n)), []byte(g.Log()), 0o600)
}

// begin starts the gateway of a round. That it does not serve is a violation, and
// no error; then there is none.
func (r *run) begin(ctx context.Context, n int) (*gateway.Gateway, error) {
	r.launch.trace = filepath.Join(r.dir, fmt.Sprintf("round-%d.trace", n))
	g, err := r.launch.start(ctx)
	if errors.Is(err, guarded.ErrEnded) {
		r.violation(history.Violation{Rule: history.Alarm, Text: err.Error()}, fmt.Sprintf("start of round %d", n))
		return nil, nil
	}
	return g, err
}

// load lets the clients work until the returned function is called or their
// connections end.
func (r *run) load(ctx context.Context, g *gateway.Gateway, n int) (end func(), err error) {
	stop := make(chan struct{})
	var working sync.WaitGroup
	end = func() {
		close(stop)
		working.Wait()
	}
	for _, c := range r.clients {
		conn, err := peer.Dial(ctx, g.URL, peerConfig)
		if err != nil {
			end()
			return nil, err
		}
		working.Go(func() {
			defer conn.Close()
			c.work(&session{conn: conn, client: c.number, round: n, trace: r.launch.trace, began: r.began, told: &r.told}, stop)
		})
	}
	return end, nil
}

// await waits until the clients have been told of n calls that happened.
func (r *run) await(ctx context.Context, n int64, where string) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for r.told.Load() < n {
		select {
		case <-ctx.Done():
			r.violation(history.Violation{Rule: history.Alarm, Text: fmt.Sprintf("the clients were told of %d calls in all, not of %d", r.told.Load(), n)}, where)
			return
		case <-tick.C:
		}
	}
}

// settle lets the holds of a second end.
func settle(ctx context.Context) {
	select {
	case <-time.After(settling):
	case <-ctx.Done():
	}
}

// strike does to a gateway what the fault says, up to the end of its process.
func (r *run) strike(ctx context.Context, g *gateway.Gateway, f fault) error {
	switch {
	case f.trouble != none:
		return r.trouble(ctx, g, f)
	case f.end == stop:
		return g.End(syscall.SIGTERM, endTimeout)
	}
	return g.Kill()
}

// trouble makes the disk unusable. The gateway must end by itself and say why, and
// one that is started meanwhile must do the same.
func (r *run) trouble(ctx context.Context, g *gateway.Gateway, f fault) error {
	says, sentence := "fail sync", "disk I/O error"
	if f.trouble == fullDisk {
		files, err := load(filepath.Dir(r.launch.store))
		if err != nil {
			return err
		}
		room := int64(r.chance.IntN(60_000))
		for _, content := range files {
			room += int64(len(content))
		}
		says, sentence = fmt.Sprintf("room %d", room), "database or disk is full"
	}
	if err := os.WriteFile(r.launch.control, []byte(says), 0o600); err != nil {
		return err
	}
	if err := endsWithASentence(g, sentence); err != nil {
		r.violation(history.Violation{Rule: history.Alarm, Text: err.Error()}, f.trouble)
	}
	again, err := r.launch.start(ctx)
	switch {
	case err == nil: // there was room for a start
		if err := again.Kill(); err != nil {
			return err
		}
	case errors.Is(err, guarded.ErrEnded):
		if err := endsWithASentence(again, sentence); err != nil {
			r.violation(history.Violation{Rule: history.Alarm, Text: "a start meanwhile: " + err.Error()}, f.trouble)
		}
	default:
		return err
	}
	return os.Remove(r.launch.control)
}

// aftermath follows the trace of a round, judges images of moments within it and
// the one that is left, and puts that in place for the next gateway.
func (r *run) aftermath(ctx context.Context, n int, f fault) error {
	events, err := readTrace(r.launch.trace)
	if err != nil {
		return err
	}
	points := make([]int, r.cfg.Points)
	for i := range points {
		points[i] = r.chance.IntN(len(events) + 1)
	}
	slices.Sort(points)
	for i := range len(events) + 1 {
		for len(points) > 0 && points[0] == i {
			points = points[1:]
			if err := r.judgeAt(ctx, n, i, events); err != nil {
				return err
			}
		}
		if i < len(events) {
			r.disk.apply(events[i])
		}
	}
	image, err := r.left(f)
	if err != nil {
		return err
	}
	return r.judgeImage(ctx, moment{n, forever}, image, fmt.Sprintf("after round %d (%v)", n, f))
}

// judgeAt judges an image of the moment before event i of a round.
func (r *run) judgeAt(ctx context.Context, n, i int, events []event) error {
	at := int64(0)
	if i > 0 {
		at = events[i-1].end
	}
	w := anyWeather(r.chance)
	image := r.disk.crash(w, r.chance)
	if image[database] == nil {
		return nil // before its name was on the disk there can be no answer
	}
	return r.judgeImage(ctx, moment{n, at}, image, fmt.Sprintf("power lost in round %d before event %d (%+v)", n, i, w))
}

// left is the image that the fault leaves.
func (r *run) left(f fault) (map[string][]byte, error) {
	w := anyWeather(r.chance)
	switch f.loss {
	case none: // the operating system writes it all in the end
		return load(filepath.Dir(r.launch.store))
	case tornTail:
		w = tornEnd(r.chance)
	}
	image := r.disk.crash(w, r.chance)
	r.disk = newDisk(image, r.chance)
	return image, save(image, filepath.Dir(r.launch.store))
}

// calm is a round without a fault, at whose end everything must be in order.
func (r *run) calm(ctx context.Context, n int) error {
	g, err := r.begin(ctx, n)
	if err != nil || g == nil {
		return err
	}
	endLoad, err := r.load(ctx, g, n)
	if err != nil {
		return errors.Join(err, g.Kill())
	}
	r.await(ctx, max(r.told.Load()+100, minAcknowledged), "the calm round")
	endLoad()
	settle(ctx)
	if err := errors.Join(g.End(syscall.SIGTERM, endTimeout), r.keepLog(g, n)); err != nil {
		return err
	}
	r.judgeAnswers(n)
	found, err := readImage(ctx, filepath.Dir(r.launch.store))
	if err != nil {
		return err
	}
	h := &history.History{
		GraceMs: grace.Milliseconds(), Seed: r.result.Seed, Name: "sqlite", Faults: r.result.Faults,
		Calls: moment{n, forever}.callsBy(r.clients), Final: &found.Final,
	}
	report := r.judge(h, found, "at the end", history.Limits{MinAcknowledged: minAcknowledged, MaxOverdue: maxOverdue})
	r.result.Acknowledged, r.result.Unknown, r.result.Refused = report.Acknowledged, report.Unknown, report.Refused
	if len(r.result.Violations) == 0 {
		return nil
	}
	return errors.Join(r.save(h), report.SavePictures(r.dir))
}

// save keeps the history of a failure beside its traces and logs.
func (r *run) save(h *history.History) error {
	if h == nil {
		h = &history.History{Seed: r.result.Seed, Name: "sqlite", Faults: r.result.Faults, Calls: moment{len(r.result.Faults), forever}.callsBy(r.clients)}
	}
	return h.Save(filepath.Join(r.dir, "history.json"))
}
