//go:build unix

package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/test/lab/guarded"
)

func TestAPatchMustFitOnce(t *testing.T) {
	for _, tt := range []struct{ file, old, want string }{
		{"nonce/rules/allocate.go", "no such text", "occurs 0 times"},
		{"nonce/rules/allocate.go", "nonce.Entry", "times, want once"},
		{"nonce/no such file.go", "x", "no such file or directory"},
	} {
		_, err := Overlay(t.Context(), t.TempDir(), []Patch{{tt.file, tt.old, ""}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("patch of %q in %s: %v, want an error that says %q", tt.old, tt.file, err, tt.want)
		}
	}
}

func TestPatchesMayChangeAFileTwiceAndAddOne(t *testing.T) {
	texts := make(map[string]string)
	path := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(path, []byte("one two"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Patch{{Old: "one", New: "1"}, {Old: "two", New: "2"}} {
		if err := p.apply(path, texts); err != nil {
			t.Fatal(err)
		}
	}
	added := Patch{New: "three"}
	if err := added.apply("b.go", texts); err != nil {
		t.Fatal(err)
	}
	if texts[path] != "1 2" || texts["b.go"] != "three" {
		t.Errorf("the texts are %q", texts)
	}
}

func TestTheGatewayIsBuiltOnceForAll(t *testing.T) {
	exe, err := Program(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(exe) // a file that is open keeps its identity
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	again, err := Program(t.Context())
	if err != nil || again != exe {
		t.Fatal(again, err)
	}
	first, err := f.Stat()
	second, err2 := os.Stat(exe)
	if err != nil || err2 != nil || !os.SameFile(first, second) { // go build touches it, and writes it anew where it is old
		t.Errorf("it is another file: %v, %v", err, err2)
	}
}

func TestAlarmsAreFoundWithWhatFollowsThem(t *testing.T) {
	log := "ready\nthe store went back\nWARNING: DATA RACE\nat\n"
	got := Alarms(log, func(line string) bool { return strings.Contains(line, "went back") })
	if len(got) != 1 || got[0] != log[len("ready\n"):] {
		t.Errorf("found %q", got)
	}
	never := func(string) bool { return false }
	if got := Alarms(log, never); len(got) != 1 || !strings.HasPrefix(got[0], "WARNING") {
		t.Errorf("found %q, want the race", got)
	}
	if got := Alarms("all is well\n", never); got != nil {
		t.Errorf("found %q, want nothing", got)
	}
}

func TestLongAGatewayServesEndsInOrderAndSaysWhyItDoesNotStart(t *testing.T) {
	room, err := guarded.Open("gatewaytest", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer room.Close()
	exe := filepath.Join(room.Dir(), "gateway")
	if err := Build(t.Context(), exe, nil); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Program: exe, Log: "log", Args: []string{"--store=sqlite:" + filepath.Join(room.Dir(), "db")}}
	g, err := Start(t.Context(), room, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(g.URL, "ws://127.0.0.1:") || !strings.HasPrefix(g.Admin, "http://127.0.0.1:") {
		t.Errorf("it listens on %q and %q", g.URL, g.Admin)
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	cfg.Log, cfg.Args = "another log", []string{"--store=nonsense"}
	g, err = Start(t.Context(), room, cfg)
	if !errors.Is(err, guarded.ErrEnded) || g == nil || !strings.Contains(g.Log(), "store") {
		t.Errorf("with a store that is none: %v, %v", g, err)
	}
}
