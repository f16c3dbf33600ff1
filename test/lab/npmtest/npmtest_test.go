package npmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// lock is a package-lock.json with one package, of which these are the members.
func lock(members string) string {
	return `{"packages":{"":{"name":"x"},"node_modules/p":{` + members + `}}}`
}

const good = `"version":"1.0.0","integrity":"sha512-AAAA"`

// source is what a package hands to Folder.
func source(lock string) fstest.MapFS {
	return fstest.MapFS{
		"package.json":      {Data: []byte(`{"name":"x"}`)},
		"package-lock.json": {Data: []byte(lock)},
		".npmrc":            {Data: []byte("audit=false\n")},
	}
}

// fake puts a node and an npm into PATH; the npm is this script, run with the folder that
// it is to fill as $3.
func fake(t *testing.T, npm string) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{"node": "exit 1", "npm": npm} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
}

func TestAFolderIsFilledOnceAndAnotherLockHasAnother(t *testing.T) {
	fake(t, `[ "$1" = ci ] && mkdir "$3/node_modules" && cp "$3/package-lock.json" "$3/.npmrc" "$3/node_modules" && echo . >>"$HOME/runs"`)
	first, err := Folder(t.Context(), "thing", source(lock(good)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Folder(t.Context(), "thing", source(lock(good))); err != nil || again != first {
		t.Errorf("the second time %s, %v; want %s", again, err, first)
	}
	other, err := Folder(t.Context(), "thing", source(lock(good+`,"license":"MIT"`)))
	if err != nil || other == first {
		t.Errorf("with another lock %s, %v; want another than %s", other, err, first)
	}
	for _, dir := range []string{first, other} {
		if _, err := os.Stat(filepath.Join(dir, "node_modules", ".npmrc")); err != nil || !strings.HasPrefix(filepath.Base(dir), "thing-") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if runs, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), "runs")); err != nil || string(runs) != ".\n.\n" {
		t.Errorf("npm ran %q times, %v; want twice", runs, err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(first), "fresh-*")); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWhatNpmSaysIsInTheError(t *testing.T) {
	fake(t, "echo no such version >&2; exit 1")
	_, err := Folder(t.Context(), "thing", source(lock(good)))
	if err == nil || !strings.Contains(err.Error(), "no such version") || !strings.Contains(err.Error(), "thing") {
		t.Errorf("the error is %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "noncegate", "*")); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWithoutNpmTheErrorSaysWhatToInstall(t *testing.T) {
	fake(t, "exit 1")
	t.Setenv("PATH", t.TempDir())
	_, err := Folder(t.Context(), "thing", source(lock(good)))
	if err == nil || !strings.Contains(err.Error(), "install Node.js and npm (Debian, Ubuntu: apt-get install nodejs npm") {
		t.Errorf("the error is %v", err)
	}
}

func TestALockWithoutChecksumsOrWithARegistryIsRefused(t *testing.T) {
	fake(t, "exit 0")
	for want, text := range map[string]string{
		"is from https://example.org/p": lock(good + `,"resolved":"https://example.org/p"`),
		"no checksum":                   lock(`"version":"1.0.0"`),
		"no version":                    lock(`"integrity":"sha512-AAAA"`),
		"names no package":              `{"packages":{"":{}}}`,
		"unexpected end":                `{"packages":`,
	} {
		if _, err := Folder(t.Context(), "thing", source(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	short := source(lock(good))
	delete(short, ".npmrc")
	if _, err := Folder(t.Context(), "thing", short); err == nil || !strings.Contains(err.Error(), ".npmrc") {
		t.Errorf("without .npmrc: %v", err)
	}
}
