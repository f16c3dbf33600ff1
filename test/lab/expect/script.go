package expect

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Script is one scenario of a file. It begins with a line "== NAME". Each other line is a step,
// and the indented lines below a step are what it showed. A line that begins with # says why.
type Script struct {
	lines, played []string
	option        string // its first line, once it was asked for
}

// Option returns the words behind a word that begins the first line of the scenario, nil if another
// word does. Play leaves that line out.
func (s *Script) Option(word string) []string {
	for _, line := range s.lines[1:min(2, len(s.lines))] {
		if words := strings.Fields(line); len(words) > 0 && words[0] == word {
			s.option = line
			return words[1:]
		}
	}
	return nil
}

// Play does the steps one after the other.
func (s *Script) Play(do func(command string, args []string) (shown []string)) {
	for i, line := range s.lines {
		if strings.HasPrefix(line, "    ") {
			continue // what it showed before
		}
		s.played = append(s.played, line)
		words := strings.Fields(line)
		if i == 0 || len(words) == 0 || words[0] == "#" || line == s.option {
			continue
		}
		for _, shown := range do(words[0], words[1:]) {
			s.played = append(s.played, "    "+shown)
		}
	}
}

// Set gives a field of a struct, named A.B where it is within one, the value that a text has.
func Set(of any, name, text string) (err error) {
	field := reflect.ValueOf(of).Elem()
	for part := range strings.SplitSeq(name, ".") {
		if field = field.FieldByName(part); !field.IsValid() {
			return fmt.Errorf("there is no %s", name)
		}
	}
	switch to := field.Addr().Interface().(type) {
	case *time.Duration:
		*to, err = time.ParseDuration(text)
	case *string:
		*to = text
	default:
		_, err = fmt.Sscan(text, to)
	}
	return err
}

var update = flag.Bool("update", false, "write what the scenarios show into their files")

// Updating reports whether -update was given, for tests that keep what they expect in files of their own.
func Updating() bool { return *update }

// Scripts plays the scenarios of files, a test each, and compares what they show with the files.
// With -update it writes that into the files.
func Scripts(t *testing.T, glob string, play func(*testing.T, *Script)) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", glob, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		Must(t, err)
		comments, rest, _ := strings.Cut(string(text), "== ")
		written := comments
		for scenario := range strings.SplitSeq(rest, "\n== ") {
			s := &Script{lines: strings.Split(strings.TrimRight(scenario, "\n"), "\n")}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+s.lines[0], func(t *testing.T) {
				play(t, s)
				if got, want := strings.Join(s.played, "\n"), strings.Join(s.lines, "\n"); got != want && !*update {
					t.Errorf("%s: got\n== %s\n\nwant\n== %s", file, got, want)
				}
			})
			if len(s.played) == 0 { // -run left it out
				s.played = s.lines
			}
			written += "== " + strings.Join(s.played, "\n") + "\n\n"
		}
		if *update {
			Must(t, os.WriteFile(file, []byte(strings.TrimSpace(written)+"\n"), 0o600))
		}
	}
}
