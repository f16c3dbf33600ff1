package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestTheBillOfAProgramHasItsModulesAndIsTheSameEachTime(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := run(w, []string{exe, exe}, "gateway", "1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	var b bill
	if err := json.Unmarshal(first.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() || b.Format != "CycloneDX" || b.Metadata.Component.Version != "1.2.3" || !slices.ContainsFunc(b.Components, func(c component) bool { return c.Name == "std" }) {
		t.Errorf("the bill is %s", first.String())
	}
}

func TestAModuleIsListedAsItIsLinked(t *testing.T) {
	sum := "h1:" + strings.Repeat("A", 43) + "="
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0", Sum: sum},
		{Path: "example.org/b", Version: "v2.0.0", Sum: sum, Replace: &debug.Module{Path: "example.org/fork", Version: "v2.0.1", Sum: sum}},
		{Path: "example.org/here", Version: "(devel)"},
	}}
	windows := &debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{{Path: "example.org/a", Version: "v1.0.0", Sum: sum}, {Path: "example.org/only", Version: "v3.0.0", Sum: sum}}}
	b, err := billOf([]*debug.BuildInfo{info, windows}, "gateway", "1")
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range b.Components {
		refs = append(refs, c.PURL)
	}
	want := "pkg:golang/example.org/a@v1.0.0 pkg:golang/example.org/fork@v2.0.1 pkg:golang/example.org/here@(devel) pkg:golang/example.org/only@v3.0.0 pkg:golang/std@1.26.8"
	if got := strings.Join(refs, " "); got != want {
		t.Errorf("listed\n%s\nwant\n%s", got, want)
	}
	if h := b.Components[0].Hashes; len(h) != 1 || h[0].Content != strings.Repeat("0", 64) {
		t.Errorf("hashes %v", h)
	}
	info.Deps[0].Sum = "h2:AAAA"
	if _, err := billOf([]*debug.BuildInfo{info}, "gateway", "1"); err == nil {
		t.Error("a checksum of another kind was taken")
	}
}

func TestWrongArgumentsAreErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"nowhere"}, {"main.go"}} {
		if err := run(new(bytes.Buffer), args, "gateway", "1"); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
