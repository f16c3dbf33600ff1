//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// errMissing is what Start returns where no server is installed.
var errMissing = errors.New("no PostgreSQL server found (initdb and postgres in one directory of PATH, " +
	"of pg_config --bindir or of /usr/lib/postgresql/*/bin): install the package postgresql " +
	"(Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; " +
	"Alpine: apk add postgresql; macOS: brew install postgresql)")

// binDir finds the first of dirs that holds both initdb and postgres. A postgres
// without initdb beside it does not count: it cannot make a cluster.
func binDir(dirs []string) (string, error) {
	for _, dir := range dirs {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errMissing
}

// BinDir is the folder of all programs of the server, also of those that no folder of PATH has.
func BinDir() (string, error) {
	dir, err := binDir(candidateDirs())
	if err != nil {
		return "", err
	}
	// initdb and postgres may be links to where the others are.
	real, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
	return filepath.Dir(real), err
}

// candidateDirs lists where to look, best first.
func candidateDirs() []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		slices.Reverse(found)              // they come sorted, and every version has two digits
		dirs = append(dirs, found...)
	}
	return dirs
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
