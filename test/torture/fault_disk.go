//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"noncegate/test/lab/guarded"
)

// fileSide is the disk under a gateway on SQLite.
//
// A kill alone cannot show a missing fsync, because the operating system keeps what the process wrote. So the gateway is built with one
// more file (testdata/tracingvfs.go), which stands between SQLite and the file system and writes down every change of a file and every
// sync. From this trace a [disk] knows what a loss of power would certainly leave, and makes an image in which any part of the rest
// survives, in any order, torn, with rubbish; the gateway starts on it. What was answered before must be in it.
//
// It assumes what SQLite does of the disk: a sync that succeeded holds, and a write harms no byte beside those written.
type fileSide struct {
	room     string
	disk     *disk
	followed int // traces, of the starts of the node in their order
}

// newFileSide makes an empty disk below a folder.
func newFileSide(room string, seed uint64) (*fileSide, error) {
	s := &fileSide{room: room, disk: newDisk(nil, rand.New(rand.NewPCG(seed, 4000)))}
	return s, os.Mkdir(s.store(), 0o700)
}

func (s *fileSide) store() string    { return filepath.Join(s.room, "store") }
func (s *fileSide) database() string { return filepath.Join(s.store(), "store.db") }
func (s *fileSide) control() string  { return filepath.Join(s.room, "control") } // tells the disk to be full or to fail
func (s *fileSide) trace(start int) string {
	return filepath.Join(s.room, fmt.Sprintf("%d.trace", start))
}

// env has the n-th start of a gateway traced.
func (s *fileSide) env(start int) []string {
	return []string{"TORTURE_DISK_TRACE=" + s.trace(start), "TORTURE_DISK_CONTROL=" + s.control()}
}

// follow has the disk know of all starts of the gateway so far, which has ended.
func (s *fileSide) follow(starts int) error {
	for ; s.followed < starts; s.followed++ {
		if err := s.disk.follow(s.trace(s.followed + 1)); err != nil {
			return err
		}
	}
	return nil
}

// crash puts what a loss of power leaves in place.
func (s *fileSide) crash(w weather, r *rand.Rand) error {
	image := s.disk.crash(w, r)
	s.disk = newDisk(image, r)
	return save(image, s.store())
}

// An ending is a way for the gateway of a file to end; what still runs then is killed.
type ending func(ctx context.Context, b *breaker, n *node) error

func killed(context.Context, *breaker, *node) error { return nil }

func stopped(_ context.Context, _ *breaker, n *node) error {
	n.end(syscall.SIGTERM)
	return nil
}

func failSync(ctx context.Context, b *breaker, n *node) error {
	return b.trouble(ctx, n, "fail sync", "disk I/O error")
}

// diskFaults are each end of the gateway of a file, alone and with each loss of what was not synced.
func diskFaults() (all []Fault) {
	for _, how := range []struct {
		name string
		end  ending
	}{{"file-kill", killed}, {"file-stop", stopped}, {"full-disk", fillDisk}, {"failed-sync", failSync}} {
		all = append(all,
			Fault{Name: how.name, Of: "sqlite", do: onDisk(how.end, nil)},
			Fault{Name: how.name + "-power-loss", Of: "sqlite", do: onDisk(how.end, anyWeather)},
			Fault{Name: how.name + "-torn-tail", Of: "sqlite", do: onDisk(how.end, tornEnd)})
	}
	return all
}

// onDisk ends the gateway after some work since its start.
func onDisk(end ending, left func(*rand.Rand) weather) func(context.Context, *breaker) error {
	return func(ctx context.Context, b *breaker) error {
		b.nodes[0].away.Lock()
		defer b.nodes[0].away.Unlock()
		lasts(ctx, b.between(100*time.Millisecond, time.Second))
		return b.endOnDisk(ctx, end, left)
	}
}

// failSyncAndLosePower has a gateway start on what a failed sync left, and lose power a few commits later, before SQLite has written
// its log back.
func failSyncAndLosePower(ctx context.Context, b *breaker) error {
	b.nodes[0].away.Lock()
	defer b.nodes[0].away.Unlock()
	for range 6 {
		lasts(ctx, b.between(100*time.Millisecond, 500*time.Millisecond))
		err := b.endOnDisk(ctx, failSync, nil)
		enough := b.load.acknowledged.Load() + 1 + b.rnd.Int64N(8)
		b.repeat(ctx, 2*time.Second, func() time.Duration {
			if b.load.acknowledged.Load() >= enough {
				enough = math.MaxInt64
				err = errors.Join(err, b.endOnDisk(ctx, killed, anyWeather))
			}
			return 100 * time.Microsecond
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// endOnDisk ends the gateway and starts it again on what is left. Without a loss of power the operating system writes everything.
func (b *breaker) endOnDisk(ctx context.Context, end ending, left func(*rand.Rand) weather) error {
	n := b.nodes[0]
	b.note("the gateway ends")
	err := end(ctx, b, n)
	n.end(syscall.SIGKILL)
	if err == nil {
		err = b.file.follow(n.starts)
	}
	if err == nil && left != nil {
		w := left(b.rnd)
		b.note("what was not synced is lost: %+v", w)
		err = b.file.crash(w, b.rnd)
	}
	if err == nil {
		err = b.restart(ctx, n)
	}
	if errors.Is(err, guarded.ErrEnded) { // what was left cannot be used
		n.wrong("%v", err)
		return nil
	}
	return err
}

// fillDisk leaves room for a little more than there is.
func fillDisk(ctx context.Context, b *breaker, n *node) error {
	room := b.rnd.Int64N(60_000)
	files, err := os.ReadDir(b.file.store())
	for _, f := range files {
		info, failed := f.Info()
		if failed != nil {
			return failed
		}
		room += info.Size()
	}
	return errors.Join(err, b.trouble(ctx, n, fmt.Sprint("room ", room), "database or disk is full"))
}

// trouble makes the disk unusable. The gateway must end by itself and say why, and one that is started meanwhile must do the same.
func (b *breaker) trouble(ctx context.Context, n *node, says, sentence string) error {
	if err := os.WriteFile(b.file.control(), []byte(says), 0o600); err != nil {
		return err
	}
	n.endsWithASentence(sentence)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	switch err := n.start(ctx); {
	case err == nil: // there was room for a start
		n.end(syscall.SIGKILL)
	case errors.Is(err, guarded.ErrEnded):
		n.endsWithASentence(sentence)
	default:
		return err
	}
	return os.Remove(b.file.control())
}

// endsWithASentence waits for a gateway that met a disk it could not use to end by itself, with a failure, and a last line that says
// why. One that does not is killed.
func (n *node) endsWithASentence(part string) {
	n.mu.Lock()
	p := n.proc
	n.proc = nil
	n.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case <-p.Exited():
	case <-time.After(2 * endTimeout):
		n.wrong("it did not end although its disk cannot be used: %v", p.End(syscall.SIGKILL, endTimeout))
		return
	}
	log, code := strings.TrimSpace(p.LogTail(2000)), 0
	if exit, ok := errors.AsType[*exec.ExitError](p.Err()); ok {
		code = exit.ExitCode()
	}
	if last := log[strings.LastIndexByte(log, '\n')+1:]; code <= 0 || !strings.Contains(last, part) {
		n.wrong("it ended with code %d and %q, want a failure and %q", code, last, part)
	}
}
