package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/expect"
)

var flagWord = regexp.MustCompile(`--[a-z][a-z0-9-]*[a-z0-9]`)

// foreignFlags are flags in the pages that no command of gateway declares: its own --help and
// --version, those of the bench and the torture, and those of foreign tools.
var foreignFlags = []string{
	"--help", "--version", "--rows", "--faults", "--root", "--port", "--block-time",
	"--now", "--build", "--format", "--from-literal", "--from-file", "--key",
	"--private-key", "--value",
}

// toolPages describe other programs of this tree, whose flags those programs check.
var toolPages = []string{"bench.md", "measured.md", "testing.md", "torture.md", "18-what-was-tried-for-speed.md"}

func TestEveryFlagInThePagesExists(t *testing.T) {
	known := slices.Clone(foreignFlags)
	for _, command := range commandModel(t).Leaves(true) {
		for _, flag := range command.Flags {
			known = append(known, "--"+flag.Name)
		}
	}
	var pages []string
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/decisions/*.md", "deploy/README.md"} {
		found, err := filepath.Glob("../../" + pattern)
		expect.Must(t, err)
		pages = append(pages, found...)
	}
	if len(pages) < 30 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	for _, page := range pages {
		if slices.Contains(toolPages, filepath.Base(page)) {
			continue
		}
		text, err := os.ReadFile(page)
		expect.Must(t, err)
		for _, word := range flagWord.FindAllString(string(text), -1) {
			if !slices.Contains(known, word) {
				t.Errorf("%s names %s, which is no flag of any command", page, word)
			}
		}
	}
}

// TestThePageOfSettingsNamesWhatBelongsTogether: each two settings of which the help of one names the other.
func TestThePageOfSettingsNamesWhatBelongsTogether(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	expect.Must(t, err)
	named := flagWord.FindAllString(string(text), -1)
	pairs := 0
	for _, flag := range serveFlags(t) {
		for _, other := range flagWord.FindAllString(flag.Help, -1) {
			pairs++
			for _, one := range []string{"--" + flag.Name, other} {
				if !slices.Contains(named, one) {
					t.Errorf("docs/configuration.md does not name %s, although the help of --%s names %s", one, flag.Name, other)
				}
			}
		}
	}
	if pairs < 20 {
		t.Errorf("only %d pairs were found", pairs)
	}
}

// commandModel is the command line with its defaults.
func commandModel(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(new(commands), kong.Vars{"version": ""}, kong.PostBuild(addHelp))
	expect.Must(t, err)
	return parser.Model
}
