//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// candidateDirs lists where to look, best first.
func candidateDirs() []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		slices.SortFunc(found, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// majorVersion is the first number in a path: 16 in /usr/lib/postgresql/16/bin.
func majorVersion(path string) int {
	start := strings.IndexAny(path, "0123456789")
	if start < 0 {
		return 0
	}
	digits := path[start:]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, _ := strconv.Atoi(digits)
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
