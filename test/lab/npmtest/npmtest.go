// Package npmtest has npm install what tests need of its packages: pinned by a lock file
// with checksums, once, into a folder of the user's cache. Nothing else of the machine is
// touched, and nothing is skipped: where npm is missing the error says what to install.
package npmtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// files are what a package of ours has to have, and all of what is installed is taken from.
var files = []string{"package.json", "package-lock.json", ".npmrc"}

// Folder is a folder whose node_modules has what the package-lock.json in source names. It is filled the first time, which takes as
// long as npm does, and is shared by all that come with the same files; it must not be changed. name is the beginning of its own.
// Several processes may call at once.
func Folder(ctx context.Context, name string, source fs.FS) (string, error) {
	texts := make(map[string][]byte)
	hash := sha256.New()
	for _, file := range files {
		text, err := fs.ReadFile(source, file)
		if err != nil {
			return "", fmt.Errorf("npm packages of %s: %w", name, err)
		}
		texts[file] = text
		fmt.Fprintf(hash, "%s %d\n%s", file, len(text), text)
	}
	if err := checkLock(texts["package-lock.json"]); err != nil {
		return "", fmt.Errorf("npm packages of %s: package-lock.json: %w", name, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("npm packages of %s: no cache folder: %w", name, err)
	}
	dir := filepath.Join(cache, "noncegate", fmt.Sprintf("%s-%x", name, hash.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := install(ctx, dir, texts); err != nil {
		return "", fmt.Errorf("npm packages of %s: %w", name, err)
	}
	return dir, nil
}

// install fills a folder aside and names it then, so that nobody ever sees half of it.
func install(ctx context.Context, dir string, texts map[string][]byte) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: install Node.js and npm (Debian, Ubuntu: apt-get install nodejs npm; else see https://nodejs.org)", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "fresh-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(fresh, file), text, 0o600); err != nil {
			return err
		}
	}
	if out, err := exec.CommandContext(ctx, "npm", "ci", "--prefix", fresh).CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, gone := os.Stat(dir); gone != nil { // nobody else was faster
			return err
		}
	}
	return nil
}

// checkLock refuses a lock file that names where packages come from, so that everybody's
// own registry is asked, or one without its checksum.
func checkLock(text []byte) error {
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Resolved  string `json:"resolved"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return err
	}
	if len(lock.Packages) < 2 {
		return errors.New("it names no package")
	}
	for name, p := range lock.Packages {
		switch {
		case p.Resolved != "":
			return fmt.Errorf("%s is from %s; omit-lockfile-registry-resolved=true leaves that out", name, p.Resolved)
		case name != "" && (p.Version == "" || !strings.HasPrefix(p.Integrity, "sha512-")):
			return fmt.Errorf("%s has no version or no checksum", name)
		}
	}
	return nil
}
