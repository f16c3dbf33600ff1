// Package powershell holds only a test: the PowerShell scripts of this
// repository are parsed with a grammar, and held against the program they call.
// They are not run.
//
// The grammar comes from npm, in the versions of package-lock.json, into a folder
// of the user's cache.
package powershell

import (
	"embed"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"noncegate/internal/testenv/gateway"
	"noncegate/internal/testenv/npmtest"
)

// script is what parse.mjs says of a file.
type script struct {
	File       string      `json:"file"`
	Problems   []problem   `json:"problems"`
	Help       string      `json:"help"`
	Parameters []parameter `json:"parameters"`
	Strings    []string    `json:"strings"`
}

type parameter struct {
	Name       string `json:"name"`
	Documented bool   `json:"documented"` // by a comment right before it
}

type problem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	What   string `json:"what"`
}

const root = "../../.."

// command is where a script names the command of the program.
var command = regexp.MustCompile(`(?m)^Invoke-LoadTest -Command '(\w+)' `)

func TestEveryScriptIsSyntacticallyRight(t *testing.T) {
	files := scripts(t)
	for _, s := range parse(t, files...) {
		for _, p := range s.Problems {
			t.Errorf("%s:%d:%d: %s", s.File, p.Line, p.Column, p.What)
		}
	}
	for _, file := range files {
		text := read(t, file)
		if i := strings.IndexFunc(text, func(r rune) bool { return r > 126 }); i >= 0 {
			t.Errorf("%s: line %d has a character that Windows PowerShell 5.1 would read in another encoding",
				file, 1+strings.Count(text[:i], "\n"))
		}
	}
}

func TestPlantedMistakesAreFoundWhereTheyAre(t *testing.T) {
	const head = "param([int]$A = 1)\n$x = $A\n"
	planted := map[string]string{
		"an open brace":         "if ($A) { 1\n",
		"a brace too many":      "foreach ($y in 1..3) { $y }}\n",
		"an open string":        "$b = \"abc\n",
		"an open array":         "$b = @(1, 2\n",
		"an assignment to air":  "$b = \n",
		"a comma at the end":    "function f { param($A, ) }\n",
		"a ternary":             "$b = $A ? 1 : 2\n",
		"a chain of two":        "go build && go vet\n",
		"a null-coalescing sum": "$b = $A ?? 2\n",
	}
	dir, files := t.TempDir(), []string(nil)
	for name, text := range planted {
		file := filepath.Join(dir, name+".ps1")
		if err := os.WriteFile(file, []byte(head+text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for i, s := range parse(t, files...) {
		got := s.Problems
		if len(got) == 0 || got[0].Line != 3 || got[0].Column < 1 || got[0].What == "" {
			t.Errorf("%s: %+v, want where it is, in line 3, and what", files[i], got)
		}
	}
}

func TestEveryParameterIsInTheHelpAndNothingElse(t *testing.T) {
	for _, s := range parse(t, scripts(t)...) {
		if !strings.Contains(s.Help, "\n.SYNOPSIS\n") {
			t.Errorf("%s has no synopsis", s.File)
		}
		for _, p := range s.Parameters {
			if !p.Documented {
				t.Errorf("%s: no comment says what %s is", s.File, p.Name)
			}
		}
		if strings.Contains(s.Help, "\n.PARAMETER") {
			t.Errorf("%s documents a parameter elsewhere than before it", s.File)
		}
		if len(s.Parameters) > 0 && !strings.Contains(s.Help, "\n.EXAMPLE\n") {
			t.Errorf("%s has no example", s.File)
		}
	}
}

func TestEveryFlagThatIsPassedIsOneOfTheProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "loadtest")
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		read(t, source) // so that Go's cache of test results knows that they count
	}
	run(t, "go", append(append([]string{"build"}, gateway.FlagsOfThis()...), "-o", program, "noncegate/scripts/loadtest")...)
	flag := regexp.MustCompile(`^--[a-z0-9-]+`)
	checked := 0
	all := parse(t, scripts(t)...)
	i := slices.IndexFunc(all, func(s script) bool { return filepath.Base(s.File) == "common.ps1" })
	if i < 0 || !slices.ContainsFunc(all[i].Strings, flag.MatchString) {
		t.Fatal("common.ps1 passes no flag; this test looks in the wrong place")
	}
	for _, s := range all {
		m := command.FindStringSubmatch(read(t, s.File))
		if m == nil {
			continue // only what others share
		}
		checked++
		help := run(t, program, m[1], "--help")
		passed := 0
		for _, text := range append(s.Strings, all[i].Strings...) {
			name := flag.FindString(text)
			if name == "" {
				continue
			}
			passed++
			if !regexp.MustCompile(regexp.QuoteMeta(name) + `(=|,|\s|\])`).MatchString(help) {
				t.Errorf("%s passes %s, which loadtest %s does not have:\n%s", s.File, name, m[1], help)
			}
		}
		if passed < 5 {
			t.Errorf("%s: %d flags were found; this test looks in the wrong place", s.File, passed)
		}
	}
	if checked < 4 {
		t.Errorf("%d scripts that call the program, want 4 at least", checked)
	}
}

func TestEveryScriptPassesTheExitStatusOn(t *testing.T) {
	for _, file := range scripts(t) {
		text := read(t, file)
		if command.MatchString(text) && !strings.HasSuffix(text, "\nexit $LASTEXITCODE\n") {
			t.Errorf("%s does not end with exit $LASTEXITCODE", file)
		}
	}
}

func scripts(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".ps1" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("scripts %v; this test looks in the wrong place", files)
	}
	return files
}

func parse(t *testing.T, files ...string) []script {
	t.Helper()
	read(t, "parse.mjs") // so that Go's cache of test results knows that it counts
	out := run(t, "node", append([]string{"parse.mjs", grammar(t)}, files...)...)
	var found []script
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("parse.mjs: %v\n%s", err, out)
	}
	return found
}

//go:embed package.json package-lock.json .npmrc
var packages embed.FS

func grammar(t *testing.T) string {
	t.Helper()
	dir, err := npmtest.Folder(t.Context(), "powershell", packages)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
