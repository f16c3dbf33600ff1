//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"noncegate/test/lab/guarded"
	"noncegate/test/lab/history"
)

// round is one way for the gateway of a file to end, and what is left on its disk then.
type round []Fault

// String names it.
func (r round) String() string {
	names := make([]string, len(r))
	for i := range r {
		names[i] = r[i].Name
	}
	return strings.Join(names, "+")
}

// left is what a crash leaves; nil: the operating system writes it all in the end.
func (r round) left() func(*rand.Rand) weather { return r[len(r)-1].left }

// fileRounds are each end alone, and with each loss of what was not synced.
func fileRounds(of []Fault) (all [][]Fault) {
	for _, end := range of {
		if end.end == nil {
			continue
		}
		all = append(all, []Fault{end})
		for _, loss := range of {
			if loss.left != nil {
				all = append(all, []Fault{end, loss})
			}
		}
	}
	return all
}

// roundsOf splits faults into rounds: each begins with an end.
func roundsOf(faults []Fault) (all []round) {
	for i := range faults {
		switch n := len(all); {
		case faults[i].end != nil:
			all = append(all, round{faults[i]})
		case n > 0 && faults[i].left != nil:
			all[n-1] = append(all[n-1], faults[i])
		}
	}
	return all
}

// fileRun is one history of a gateway on SQLite: a few rounds, each of which ends by a fault,
// with a gateway on what the round before left, and one without a fault at the end.
//
// A kill alone cannot show a missing fsync, because the operating system keeps what the process
// wrote. So the gateway is built with one more file (testdata/tracingvfs.go), which stands
// between SQLite and the file system and writes down every change of a file and every sync.
// From this trace a [disk] knows at each point what a loss of power would certainly leave, and
// makes images in which any part of the rest survives, in any order, torn, with rubbish. The
// next gateway starts on such an image; images of further moments are judged beside it.
//
// What was acknowledged by then is known without comparing clocks: a client notes how long the
// trace is before it sends and after it was answered. An answer that came when the trace had n
// bytes must survive in every image of n bytes or more.
//
// It assumes what SQLite does of the disk: a sync that succeeded holds, and a write harms no
// byte beside those written.
type fileRun struct {
	Plan
	res     *Result
	node    *node
	dir     string // of everything about it
	store   string // folder of the file
	control string // a file that tells the disk to fail
	trace   string // of this round
	began   time.Time
	rnd     *rand.Rand
	disk    *disk
	load    *workload
	workers []*worker
	report  *history.Report
	images  int
}

const (
	fileClients = 6
	fileThink   = 2 * time.Millisecond // a round is short, and nobody else writes
	fileRoundsN = 4                    // of a history
	// maxPerRound bounds the calls that happen before something breaks.
	maxPerRound = 600
	fileTimeout = 30 * time.Second // until clients were told of enough, or a gateway ends
	// fileSettles is how long after the load a calm gateway has had time to end all holds, and
	// fileOverdue for how long one of them may be overdue then.
	fileSettles = maxHold + grace + 2*time.Second
	fileOverdue = grace + 1500*time.Millisecond
)

// runFile does one run on a file.
func runFile(ctx context.Context, p Plan) (res *Result, err error) {
	started := time.Now()
	r := &fileRun{Plan: p, res: &Result{Seed: p.Seed}, began: started, rnd: rand.New(rand.NewPCG(p.Seed, 0)), load: new(workload), report: new(history.Report)}
	rounds := roundsOf(p.Faults)
	for all := fileRounds(p.Axis.own()); len(rounds) < fileRoundsN && !p.Exactly; {
		rounds = append(rounds, round(all[r.rnd.IntN(len(all))]))
	}
	for _, of := range rounds {
		r.res.Faults = append(r.res.Faults, of.String())
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	h, err := r.rounds(ctx, rounds)
	if err != nil {
		return nil, err
	}
	r.res.Report, r.res.Images, r.res.Took = r.report, r.images, time.Since(started)
	if p.Dir == "" || r.res.OK() && !p.KeepAll {
		return r.res, nil
	}
	r.res.Kept = filepath.Join(p.Dir, fmt.Sprintf("%s-seed-%d", p.Name, p.Seed))
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, err
	}
	keep := errors.Join(os.RemoveAll(r.res.Kept), os.CopyFS(r.res.Kept, os.DirFS(r.dir)), keepLogs(r.node.room.Dir(), r.res.Kept))
	return r.res, errors.Join(keep, keepReport(r.res, h))
}

// open makes the folders, the node and its clients.
func (r *fileRun) open() (err error) {
	if r.dir, err = os.MkdirTemp("", "torture-file"); err != nil {
		return err
	}
	r.store, r.control = filepath.Join(r.dir, "store"), filepath.Join(r.dir, "control")
	if err := os.MkdirAll(r.store, 0o700); err != nil {
		return err
	}
	room, err := guarded.Open("torture-file", nil)
	if err != nil {
		return err
	}
	listen, err := guarded.FreeAddr()
	if err != nil {
		return errors.Join(err, room.Close())
	}
	r.node = &node{id: "n", room: room, exe: r.Gateway, url: "ws://" + listen + "/ws", alarming: func(line string) bool {
		return strings.Contains(line, "invariant") || strings.Contains(line, "went back") || strings.Contains(line, "malformed")
	}}
	if r.Seed%4 == 3 && r.Plain != "" {
		r.node.exe = r.Plain
	}
	r.node.basic.Store(r.rnd.IntN(3) == 0)
	r.node.args = slices.Concat([]string{"--listen=" + listen, "--node-id=n", "--store=sqlite:" + filepath.Join(r.store, database), "--drain-timeout=5s"}, timesArgs())
	r.disk = newDisk(nil, r.rnd)
	for i := range fileClients {
		c := newClient(i, r.began, []*node{r.node}, rand.New(rand.NewPCG(r.Seed, uint64(1000+i))))
		c.mark = r.written
		r.workers = append(r.workers, &worker{client: c, load: r.load, owners: make(map[string]*node)})
	}
	return nil
}

func (r *fileRun) close() error {
	if r.node == nil {
		return os.RemoveAll(r.dir)
	}
	return errors.Join(r.node.room.Close(), os.RemoveAll(r.dir))
}

// written is how long the trace is.
func (r *fileRun) written() int64 {
	info, err := os.Stat(r.trace)
	if err != nil {
		return 0
	}
	return info.Size()
}

// rounds goes through all of them and the calm one. It stops early at a violation. Its error
// is one of the harness, not a verdict.
func (r *fileRun) rounds(ctx context.Context, all []round) (*history.History, error) {
	for n, of := range all {
		if err := r.round(ctx, n, of); err != nil {
			return nil, fmt.Errorf("round %d (%v): %w", n, of, err)
		}
		if !r.report.OK() {
			return r.history(moment{n, forever}, nil), nil
		}
	}
	h, err := r.calm(ctx, len(all))
	if err != nil {
		err = fmt.Errorf("calm round: %w", err)
	}
	return h, err
}

// begin starts the gateway of a round. That it does not serve is a violation, and no error;
// then it is false.
func (r *fileRun) begin(ctx context.Context, n int) (serves bool, err error) {
	r.trace = filepath.Join(r.dir, fmt.Sprintf("round-%d.trace", n))
	r.node.env = []string{"PATH=" + os.Getenv("PATH"), "TORTURE_DISK_TRACE=" + r.trace, "TORTURE_DISK_CONTROL=" + r.control}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err = r.node.start(ctx); errors.Is(err, guarded.ErrEnded) {
		r.wrong(history.Alarm, "start of round %d: %v", n, err)
		return false, nil
	}
	return err == nil, err
}

// works lets the clients work until the returned function is called.
func (r *fileRun) works(ctx context.Context, n int) (end func()) {
	stop := make(chan struct{})
	var working sync.WaitGroup
	for _, w := range r.workers {
		w.round = n
		working.Go(func() { w.repeat(ctx, stop, fileThink, w.one) })
	}
	return func() {
		close(stop)
		working.Wait()
	}
}

// await waits until the clients have been told of n calls that happened.
func (r *fileRun) await(ctx context.Context, n int64, where string) {
	until := time.Now().Add(fileTimeout)
	for r.load.acknowledged.Load() < n && ctx.Err() == nil {
		if time.Now().After(until) {
			r.wrong(history.Alarm, "%s: the clients were told of %d calls in all, not of %d", where, r.load.acknowledged.Load(), n)
			return
		}
		lasts(ctx, time.Millisecond)
	}
}

// round starts a gateway on what the last round left, lets the clients work, does what the
// fault says, and judges what is left.
func (r *fileRun) round(ctx context.Context, n int, of round) error {
	if serves, err := r.begin(ctx, n); err != nil || !serves {
		return err
	}
	end := r.works(ctx, n)
	r.await(ctx, r.load.acknowledged.Load()+r.rnd.Int64N(maxPerRound), fmt.Sprintf("round %d", n))
	err := of[0].end(ctx, r)
	end()
	r.node.end(syscall.SIGKILL)
	if err != nil {
		return err
	}
	r.judgeNode(n)
	return r.aftermath(ctx, n, of)
}

// killFile and stopFile end the gateway, as a crash does or in order.
func killFile(_ context.Context, r *fileRun) error {
	r.node.end(syscall.SIGKILL)
	return nil
}

func stopFile(_ context.Context, r *fileRun) error {
	r.node.end(syscall.SIGTERM)
	return nil
}

// fillDisk leaves room for a little more than there is.
func fillDisk(ctx context.Context, r *fileRun) error {
	files, err := load(r.store)
	if err != nil {
		return err
	}
	room := r.rnd.IntN(60_000)
	for _, content := range files {
		room += len(content)
	}
	return r.trouble(ctx, fmt.Sprint("room ", room), "database or disk is full")
}

func failSync(ctx context.Context, r *fileRun) error {
	return r.trouble(ctx, "fail sync", "disk I/O error")
}

// trouble makes the disk unusable. The gateway must end by itself and say why, and one that is
// started meanwhile must do the same.
func (r *fileRun) trouble(ctx context.Context, says, sentence string) error {
	if err := os.WriteFile(r.control, []byte(says), 0o600); err != nil {
		return err
	}
	if err := r.node.endsWithASentence(sentence); err != nil {
		r.wrong(history.Alarm, "%s: %v", says, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	switch err := r.node.start(ctx); {
	case err == nil: // there was room for a start
		r.node.end(syscall.SIGKILL)
	case !errors.Is(err, guarded.ErrEnded):
		return err
	default:
		if err := r.node.endsWithASentence(sentence); err != nil {
			r.wrong(history.Alarm, "%s, a start meanwhile: %v", says, err)
		}
	}
	return os.Remove(r.control)
}

// endsWithASentence waits for a gateway that met a disk it could not use to end by itself, with
// a failure, and a last line that says why. One that does not is killed.
func (n *node) endsWithASentence(part string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.proc
	n.proc = nil
	select {
	case <-p.Exited():
	case <-time.After(fileTimeout):
		return errors.Join(fmt.Errorf("the gateway did not end within %v", fileTimeout), p.End(syscall.SIGKILL, endTimeout))
	}
	log, code := strings.TrimSpace(p.LogTail(2000)), 0
	if exit, ok := errors.AsType[*exec.ExitError](p.Err()); ok {
		code = exit.ExitCode()
	}
	last := log[strings.LastIndexByte(log, '\n')+1:]
	if code <= 0 || !strings.Contains(last, part) {
		return fmt.Errorf("the gateway ended with code %d and %q, want a failure and %q", code, last, part)
	}
	return nil
}

// aftermath follows the trace of a round, judges images of moments within it and the one that
// is left, and puts that in place for the next gateway.
func (r *fileRun) aftermath(ctx context.Context, n int, of round) error {
	events, err := readTrace(r.trace)
	if err != nil {
		return err
	}
	points := make([]int, r.Points)
	for i := range points {
		points[i] = r.rnd.IntN(len(events) + 1)
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
	image, err := r.whatIsLeft(of)
	if err != nil {
		return err
	}
	return r.judgeImage(ctx, moment{n, forever}, image, fmt.Sprintf("after round %d (%v)", n, of))
}

// judgeAt judges an image of the moment before event i of a round.
func (r *fileRun) judgeAt(ctx context.Context, n, i int, events []event) error {
	at := int64(0)
	if i > 0 {
		at = events[i-1].end
	}
	w := anyWeather(r.rnd)
	image := r.disk.crash(w, r.rnd)
	if image[database] == nil {
		return nil // before its name was on the disk there can be no answer
	}
	return r.judgeImage(ctx, moment{n, at}, image, fmt.Sprintf("power lost in round %d before event %d (%+v)", n, i, w))
}

// whatIsLeft puts what the fault leaves in place.
func (r *fileRun) whatIsLeft(of round) (map[string][]byte, error) {
	left := of.left()
	if left == nil {
		return load(r.store)
	}
	image := r.disk.crash(left(r.rnd), r.rnd)
	r.disk = newDisk(image, r.rnd)
	return image, save(image, r.store)
}

// calm is a round without a fault, at whose end everything must be in order.
func (r *fileRun) calm(ctx context.Context, n int) (*history.History, error) {
	serves, err := r.begin(ctx, n)
	if err != nil || !serves {
		return r.history(moment{n, forever}, nil), err
	}
	end := r.works(ctx, n)
	r.await(ctx, max(r.load.acknowledged.Load()+100, int64(r.Enough)), "the calm round")
	end()
	lasts(ctx, fileSettles)
	r.node.end(syscall.SIGTERM)
	r.judgeNode(n)
	found, err := readFile(ctx, r.store)
	if err != nil {
		return nil, err
	}
	h := r.history(moment{n, forever}, found)
	report := history.Check(h, history.Limits{MinAcknowledged: MinAcknowledged, MaxOverdue: fileOverdue})
	report.Violations = append(r.report.Violations, report.Violations...)
	r.report = report
	return h, nil
}
