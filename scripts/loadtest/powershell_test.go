package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/expect"
)

var (
	invoked = regexp.MustCompile(`(?m)^Invoke-LoadTest -Command '(\w+)' `)
	passed  = regexp.MustCompile(`['"]--([a-z0-9-]+)`)
)

// TestEachFlagThatAScriptPassesIsOneOfTheProgram: the scripts are not run here.
func TestEachFlagThatAScriptPassesIsOneOfTheProgram(t *testing.T) {
	parser, err := kong.New(new(commands), kong.Vars(texts))
	expect.Must(t, err)
	files, err := filepath.Glob("*.ps1")
	if err != nil || len(files) != 5 {
		t.Fatalf("scripts %v: %v", files, err)
	}
	shared := flagsIn(read(t, "common.ps1"))
	if len(shared) == 0 {
		t.Error("common.ps1 passes no flag")
	}
	if !strings.Contains(read(t, "common.ps1"), "$env:NONCEGATE_ADMIN_KEY = $AdminKey") {
		t.Error("common.ps1 hands on no key of /metrics")
	}
	for _, file := range files {
		text := read(t, file)
		if i := strings.IndexFunc(text, func(r rune) bool { return r > 126 }); i >= 0 {
			t.Errorf("%s: %q is another character to Windows PowerShell 5.1", file, text[i:i+4])
		}
		if file == "common.ps1" {
			continue
		}
		found := invoked.FindStringSubmatch(text)
		if found == nil || !strings.HasSuffix(text, "\nexit $LASTEXITCODE\n") || !strings.Contains(text, "\n.EXAMPLE\n") {
			t.Errorf("%s calls no command, does not pass its exit status on, or has no example", file)
			continue
		}
		if !strings.Contains(text, " -AdminKey $AdminKey ") {
			t.Errorf("%s does not hand on the key of /metrics", file)
		}
		known := map[string]bool{}
		for _, command := range parser.Model.Children {
			for _, flag := range command.Flags {
				known[flag.Name] = known[flag.Name] || command.Name == found[1]
			}
		}
		flags := append(flagsIn(text), shared...)
		for _, flag := range flags {
			if !known[flag] {
				t.Errorf("%s passes --%s, which loadtest %s does not have", file, flag, found[1])
			}
		}
		if len(flags) < 8 {
			t.Errorf("%s: only %v", file, flags)
		}
	}
}

func flagsIn(text string) (names []string) {
	for _, found := range passed.FindAllStringSubmatch(text, -1) {
		names = append(names, found[1])
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	expect.Must(t, err)
	return string(text)
}
