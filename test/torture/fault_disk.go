//go:build unix

package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"noncegate/test/lab/guarded"
)

// fileSide is the disk under a gateway on SQLite.
//
// A kill alone cannot show a missing sync, because the operating system keeps what the process wrote. So the gateway is built with one more
// file (testdata/forgetfulvfs.go), which stands between SQLite and the file system and keeps beside each file a twin that has only what was
// synced. A loss of power leaves the twins, and in them any part of what the files have beyond: in any order, torn, with rubbish; the
// gateway starts on that. What was answered before must be in it.
//
// It assumes what SQLite does of the disk: a sync that succeeded holds, and a write harms no byte beside those written; and that the first
// sync of a new file is one of its folder, too.
type fileSide struct{ room string }

func newFileSide(room string) (*fileSide, error) {
	s := &fileSide{room: room}
	return s, errors.Join(os.Mkdir(s.store(), 0o700), os.Mkdir(s.safe(), 0o700))
}

func (s *fileSide) store() string    { return filepath.Join(s.room, "store") }
func (s *fileSide) safe() string     { return filepath.Join(s.room, "safe") } // the twins
func (s *fileSide) database() string { return filepath.Join(s.store(), "store.db") }
func (s *fileSide) control() string  { return filepath.Join(s.room, "control") } // tells the disk to be full or to fail

func (s *fileSide) env() []string {
	return []string{"TORTURE_DISK_SAFE=" + s.safe(), "TORTURE_DISK_CONTROL=" + s.control()}
}

// weather is what a loss of power does to what was not synced.
type weather struct {
	keep    float64 // how likely one of its sectors survives
	sector  int     // bytes
	tear    bool    // one that survives may do so in part
	rubbish bool    // what did not survive beyond the old end of the file is rubbish, not zero
	inOrder bool    // what survives is the beginning of it all, cut at any byte: a torn tail
}

func anyWeather(r *rand.Rand) weather {
	return weather{
		keep:   []float64{0, 0.1, 0.5, 0.9, 1}[r.IntN(5)],
		sector: []int{512, 4096}[r.IntN(2)], tear: r.IntN(3) == 0, rubbish: r.IntN(2) == 0,
	}
}

// tornEnd is what a kill leaves of a log whose last pages the disk did not get.
func tornEnd(r *rand.Rand) weather {
	return weather{keep: 1, sector: 4096, inOrder: true, rubbish: r.IntN(2) == 0}
}

// crash leaves of the files and their twins what a loss of power does; alike, for all of that is on the disk. Of a file that was made, or
// deleted, and not synced since, chance decides whether it is there.
func (s *fileSide) crash(w weather, r *rand.Rand) error {
	files, err := readAll(s.store())
	twins, failed := readAll(s.safe())
	image := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(twins)) { // the order matters to r
		if file, there := files[name]; there {
			image[name] = w.survives(twins[name], file, r)
		} else if r.IntN(2) == 0 {
			image[name] = twins[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, known := twins[name]; !known && r.IntN(2) == 0 {
			image[name] = w.survives(nil, files[name], r)
		}
	}
	return errors.Join(err, failed, writeAll(s.store(), image), writeAll(s.safe(), image))
}

// readAll reads the files of a folder that hold what is stored.
func readAll(dir string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-shm") || strings.HasSuffix(e.Name(), ".lock") {
			continue // made again by each start
		}
		content, failed := os.ReadFile(filepath.Join(dir, e.Name()))
		files[e.Name()], err = content, errors.Join(err, failed)
	}
	return files, err
}

func writeAll(dir string, files map[string][]byte) error {
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return err
}

// survives is a file after a loss of power: what was synced of it, and of what it was then any part.
func (w weather) survives(synced, file []byte, r *rand.Rand) []byte {
	content := slices.Clone(synced)
	if len(file) < len(content) && r.Float64() < w.keep {
		content = content[:len(file):len(file)]
	}
	hit := slices.Repeat([]bool{true}, len(content))
	fill := func(n int) {
		n = max(0, n-len(content))
		content, hit = append(content, make([]byte, n)...), append(hit, make([]bool, n)...)
	}
	first, cut := len(file), len(file) // of what is not synced
	for i := range file {
		if i >= len(content) || content[i] != file[i] {
			first = i
			break
		}
	}
	if w.inOrder {
		cut = first + r.IntN(len(file)-first+1)
	}
	for at := first - first%w.sector; at < cut; at += w.sector {
		piece := file[at:min(at+w.sector, cut)]
		switch {
		case at+len(piece) <= len(content) && bytes.Equal(piece, content[at:at+len(piece)]), r.Float64() >= w.keep:
			continue
		case w.tear && r.IntN(4) == 0:
			piece = piece[:r.IntN(len(piece)+1)]
		}
		fill(at + len(piece))
		copy(content[at:], piece)
		copy(hit[at:], slices.Repeat([]bool{true}, len(piece)))
	}
	if r.IntN(2) == 0 { // the length was on the disk before the content
		fill(len(file))
	}
	for i := range content {
		if w.rubbish && !hit[i] {
			content[i] = byte(r.Uint32())
		}
	}
	return content
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

// endOnDisk ends the gateway and starts it again on what is left, which without a loss of power is all that it wrote.
func (b *breaker) endOnDisk(ctx context.Context, end ending, left func(*rand.Rand) weather) error {
	n := b.nodes[0]
	b.note("the gateway ends")
	err := end(ctx, b, n)
	n.end(syscall.SIGKILL)
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
