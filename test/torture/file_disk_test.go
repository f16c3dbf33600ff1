//go:build unix

package torture

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// always is a source whose draws differ from call to call, and not from run to run.
func always() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func write(name string, at int64, content string) event {
	return event{kind: written, name: name, number: at, data: []byte(content)}
}

// after is a disk after some events.
func after(events ...event) *disk {
	d := newDisk(map[string][]byte{"f": []byte("old old old")}, always())
	for _, e := range events {
		d.apply(e)
	}
	return d
}

// images are what many crashes of all weathers leave of file f.
func images(d *disk) map[string]bool {
	seen, r := map[string]bool{}, always()
	for range 2000 {
		w := anyWeather(r)
		w.rubbish = false
		seen[string(d.crash(w, r)["f"])] = true
	}
	return seen
}

func TestWhatWasSyncedSurvivesEveryCrash(t *testing.T) {
	d := after(write("f", 0, "new"), event{kind: synced, name: "f"})
	if got := images(d); len(got) != 1 || !got["new old old"] {
		t.Errorf("got %v", got)
	}
}

func TestWhatWasNotSyncedMaySurviveOrNot(t *testing.T) {
	d := after(write("f", 0, "new"), write("f", 8, "NEW"))
	got := images(d)
	for _, want := range []string{"old old old", "new old old", "old old NEW", "new old NEW"} {
		if !got[want] {
			t.Errorf("%q never happened among %v", want, got)
		}
	}
	for image := range got {
		if len(image) != 11 || image[3:8] != " old " {
			t.Errorf("a crash changed what nobody wrote: %q", image)
		}
	}
}

func TestAWriteIsLostBySectors(t *testing.T) {
	d := newDisk(map[string][]byte{"f": make([]byte, 2048)}, always())
	d.apply(write("f", 100, string(bytes.Repeat([]byte{'x'}, 1500))))
	torn := false
	for range 200 {
		image := d.crash(weather{keep: 0.5, sector: 512}, d.chance)["f"]
		for _, border := range [][2]int{{100, 512}, {512, 1024}, {1024, 1536}, {1536, 1600}} {
			n := bytes.Count(image[border[0]:border[1]], []byte{'x'})
			if n != 0 && n != border[1]-border[0] {
				t.Fatalf("%d bytes of a sector survived without tearing", n)
			}
		}
		torn = torn || image[100] != image[1599]
	}
	if !torn {
		t.Error("sectors of one write always shared their fate")
	}
}

func TestATornTailKeepsTheBeginningOnly(t *testing.T) {
	d := after(write("f", 11, "abcdef"), write("f", 17, "ghijkl"))
	want := "old old oldabcdefghijkl"
	lengths := map[int]bool{}
	for range 500 {
		image := d.crash(weather{keep: 1, sector: 4096, inOrder: true}, d.chance)["f"]
		image = bytes.TrimRight(image, "\x00") // the length may be there before the content
		if !bytes.HasPrefix([]byte(want), image) {
			t.Fatalf("got %q", image)
		}
		lengths[len(image)] = true
	}
	if len(lengths) != len("abcdefghijkl")+1 {
		t.Errorf("it was torn at %d places only", len(lengths))
	}
}

func TestWhatDidNotSurviveMayBeRubbish(t *testing.T) {
	d := after(write("f", 11, "abcdefgh"))
	seen := map[string]bool{}
	for range 100 {
		image := d.crash(weather{sector: 512, rubbish: true}, d.chance)["f"]
		if string(image[:11]) != "old old old" {
			t.Fatalf("it spoilt what was there: %q", image)
		}
		seen[string(image[11:])] = true
	}
	if len(seen) < 10 {
		t.Errorf("got %d kinds of rubbish", len(seen))
	}
}

func TestATruncationMayBeLost(t *testing.T) {
	got := images(after(event{kind: truncated, name: "f", number: 3}))
	if !got["old"] || !got["old old old"] || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func TestANameIsOnTheDiskOnceItsDirectoryIs(t *testing.T) {
	has := func(d *disk, name string) (with, without bool) {
		for range 100 {
			if _, ok := d.crash(weather{sector: 512}, d.chance)[name]; ok {
				with = true
			} else {
				without = true
			}
		}
		return with, without
	}
	created := []event{{kind: opened, name: "g"}, write("g", 0, "content"), {kind: synced, name: "g"}}
	if with, without := has(after(created...), "g"); !with || !without {
		t.Errorf("before the sync of the directory: with %v, without %v", with, without)
	}
	if with, without := has(after(append(created, event{kind: dirSynced})...), "g"); !with || without {
		t.Errorf("after it: with %v, without %v", with, without)
	}
	if with, without := has(after(event{kind: deleted, name: "f"}), "f"); !with || !without {
		t.Errorf("deleted: with %v, without %v", with, without)
	}
	if with, _ := has(after(event{kind: deleted, name: "f"}, event{kind: dirSynced}), "f"); with {
		t.Error("deleted for good, and it came back")
	}
}

func TestWritesWhoseSyncFailedAreNotTriedAgain(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(50) {
		d := newDisk(map[string][]byte{"f": []byte("old")}, rand.New(rand.NewPCG(seed, 0)))
		for _, e := range []event{write("f", 0, "new"), {kind: syncFailed, name: "f"}, {kind: synced, name: "f"}} {
			d.apply(e)
		}
		seen[string(d.crash(weather{keep: 1, sector: 512}, d.chance)["f"])] = true
	}
	if !seen["new"] || !seen["old"] || len(seen) != 2 {
		t.Errorf("got %v", seen)
	}
}

func TestATraceEndsAtItsLastWholeEvent(t *testing.T) {
	var b []byte
	for _, content := range []string{"first", "second"} {
		b = binary.LittleEndian.AppendUint32(b, uint32(1+2+1+8+len(content)))
		b = append(b, 'w', 1, 0, 'f', 7, 0, 0, 0, 0, 0, 0, 0)
		b = append(b, content...)
	}
	path := filepath.Join(t.TempDir(), "trace")
	for cut := range len(b) + 1 {
		if err := os.WriteFile(path, b[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		events, err := readTrace(path)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if cut >= 21 {
			want++
		}
		if cut == len(b) {
			want++
		}
		if len(events) != want {
			t.Fatalf("%d bytes: %d events, want %d", cut, len(events), want)
		}
		if want > 0 && (events[0].name != "f" || events[0].number != 7 || string(events[0].data) != "first" || events[0].end != 21) {
			t.Fatalf("got %+v", events[0])
		}
	}
}
