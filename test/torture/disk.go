//go:build unix

package torture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// disk is a directory as its processes see it and, apart from that, as a loss of power would certainly leave it.
type disk struct {
	names   map[string]*file // as processes see them
	safe    map[string]*file // as a crash leaves them
	pending []entry          // changes of names that are not synced
	chance  *rand.Rand       // decides what becomes of writes whose sync failed
}

// entry gives a name to a file, or takes it.
type entry struct {
	name string
	file *file // nil: it was deleted
}

// file is the content of a file.
type file struct {
	safe    []byte
	pending []event // writes and truncations that are not synced
}

// newDisk is a disk with the files of an image, all of them safe.
func newDisk(image map[string][]byte, chance *rand.Rand) *disk {
	d := &disk{names: map[string]*file{}, chance: chance}
	for name, content := range image {
		d.names[name] = &file{safe: slices.Clone(content)}
	}
	d.safe = maps.Clone(d.names)
	return d
}

// apply follows one event.
func (d *disk) apply(e event) {
	f := d.names[e.name]
	switch e.kind {
	case opened:
		if f == nil {
			d.rename(e.name, &file{})
		}
	case deleted:
		d.rename(e.name, nil)
		delete(d.names, e.name)
	case written, truncated:
		f.pending = append(f.pending, e)
	case synced:
		for _, p := range f.pending {
			f.safe = p.change(f.safe)
		}
		f.pending = nil
	case syncFailed:
		// An operating system may count the pages as written after that and never try again.
		f.safe = weather{keep: 0.5, sector: 4096}.survives(f, d.chance)
		f.pending = nil
	case dirSynced:
		d.safe, d.pending = maps.Clone(d.names), nil
	}
}

func (d *disk) rename(name string, f *file) {
	d.names[name] = f
	d.pending = append(d.pending, entry{name, f})
}

// change is content after a write or a truncation.
func (e event) change(content []byte) []byte {
	if e.kind == truncated {
		return resize(content, int(e.number))
	}
	content = resize(content, max(len(content), int(e.number)+len(e.data)))
	copy(content[e.number:], e.data)
	return content
}

func resize(b []byte, n int) []byte {
	if n <= len(b) {
		return b[:n:n] // what is appended later must not show what was cut off
	}
	return append(b, make([]byte, n-len(b))...)
}

// weather is what a crash does to writes that were not synced.
type weather struct {
	keep    float64 // how likely one of their sectors survives
	sector  int     // bytes
	tear    bool    // one that survives may do so in part
	rubbish bool    // what did not survive beyond the old end of the file is rubbish, not zero
	inOrder bool    // what survives is the beginning of it all, cut at any byte: a torn tail
}

// anyWeather draws one.
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

// crash is the directory after a loss of power now. The disk goes on as if none had been.
func (d *disk) crash(w weather, r *rand.Rand) map[string][]byte {
	names := maps.Clone(d.safe)
	// A file system keeps the order of changes of names.
	for _, e := range d.pending[:r.IntN(len(d.pending)+1)] {
		names[e.name] = e.file
		if e.file == nil {
			delete(names, e.name)
		}
	}
	image := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(names)) { // the order matters to r
		image[name] = w.survives(names[name], r)
	}
	return image
}

// survives is a file after a crash.
func (w weather) survives(f *file, r *rand.Rand) []byte {
	content, end := slices.Clone(f.safe), len(f.safe)
	var left int // bytes that are written before the tear
	if w.inOrder {
		for _, e := range f.pending {
			left += len(e.data)
		}
		left = r.IntN(left + 1)
	}
	hit := slices.Repeat([]bool{true}, end)
	for _, e := range f.pending {
		if e.kind == truncated {
			if r.Float64() < w.keep {
				content, hit, end = e.change(content), hit[:min(len(hit), int(e.number))], int(e.number)
			}
			continue
		}
		end = max(end, int(e.number)+len(e.data))
		for _, piece := range w.pieces(e) {
			switch {
			case w.inOrder:
				n := min(left, len(piece.data))
				piece.data, left = piece.data[:n], left-n
			case r.Float64() >= w.keep:
				continue
			case w.tear && r.IntN(4) == 0:
				piece.data = piece.data[:r.IntN(len(piece.data)+1)]
			}
			if len(piece.data) == 0 {
				continue
			}
			content = piece.change(content)
			for len(hit) < len(content) {
				hit = append(hit, false)
			}
			copy(hit[piece.number:], slices.Repeat([]bool{true}, len(piece.data)))
		}
	}
	if r.IntN(2) == 0 { // the length was on the disk before the content
		content = resize(content, max(len(content), end))
	}
	if w.rubbish {
		for i := range content {
			if i >= len(hit) || !hit[i] {
				content[i] = byte(r.Uint32())
			}
		}
	}
	return content
}

// pieces cuts a write at the borders of sectors.
func (w weather) pieces(e event) []event {
	var pieces []event
	for len(e.data) > 0 {
		n := min(w.sector-int(e.number)%w.sector, len(e.data))
		pieces = append(pieces, event{kind: written, number: e.number, data: e.data[:n]})
		e.number, e.data = e.number+int64(n), e.data[n:]
	}
	return pieces
}

// save makes dir hold exactly the files of an image.
func save(image map[string][]byte, dir string) error {
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
	for name, content := range image {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return err
}

// The kinds of events in a trace, as testdata/tracingvfs.go writes them; number is an offset of what is written, a length of what is
// cut off. Others change nothing.
const (
	opened     = 'o' // a file was opened, and created if it was not there
	written    = 'w'
	truncated  = 't'
	synced     = 's'
	syncFailed = 'f' // the disk failed, and what became of the writes is not known
	deleted    = 'd'
	dirSynced  = 'D'
)

// event is one thing that happened to a file of the directory.
type event struct {
	kind   byte
	name   string
	number int64
	data   []byte
}

// follow applies the events of a trace. A last one that was not written to its end did not happen: its process was killed before.
func (d *disk) follow(trace string) error {
	b, err := os.ReadFile(trace)
	if err != nil {
		return fmt.Errorf("read trace: %w", err)
	}
	for len(b) >= 4 {
		n := int(binary.LittleEndian.Uint32(b))
		if n < 11 || n > 1<<26 {
			return fmt.Errorf("read trace %s: an event of %d bytes", trace, n)
		}
		if b = b[4:]; len(b) < n {
			break
		}
		name := int(binary.LittleEndian.Uint16(b[1:]))
		e := event{kind: b[0], name: string(b[3 : 3+name]), number: int64(binary.LittleEndian.Uint64(b[3+name:])), data: b[11+name : n]}
		d.apply(e)
		b = b[n:]
	}
	return nil
}
