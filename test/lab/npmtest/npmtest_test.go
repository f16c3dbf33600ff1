package npmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const good = `"version":"1.0.0","integrity":"sha512-AAAA"`

// source is what a package hands to Folder: a lock with one package, of which these are the members.
func source(members string) fstest.MapFS {
	return fstest.MapFS{
		"package.json":      {Data: []byte(`{"name":"x"}`)},
		"package-lock.json": {Data: []byte(`{"packages":{"":{"name":"x"},"node_modules/p":{` + members + `}}}`)},
		".npmrc":            {Data: []byte("audit=false\n")},
	}
}

func TestNothingIsInstalledWithoutChecksumsAndWhatNpmSaysIsInTheError(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	for name, script := range map[string]string{"node": "exit 1", "npm": "echo no such version >&2; exit 1"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	for want, members := range map[string]string{
		"is from https://example.org/p": good + `,"resolved":"https://example.org/p"`,
		"no checksum":                   `"version":"1.0.0"`,
		"no such version":               good,
	} {
		if _, err := Folder(t.Context(), "thing", source(members)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", members, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Folder(t.Context(), "thing", source(good)); err == nil || !strings.Contains(err.Error(), "apt-get install nodejs npm") {
		t.Errorf("without npm: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*", "*")); err != nil || left != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
