package interop

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"noncegate/test/interop/bundle"
	"noncegate/test/interop/chaintest"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// What is embedded is what the sources make, byte for byte, and the compiler of TypeScript has nothing to say of these.
func TestLongTheConsoleIsWhatItsSourcesMake(t *testing.T) {
	if err := bundle.Check(t.Context()); err != nil {
		t.Error(err)
	}
	dist := filepath.Join(get(bundle.Folder(t.Context()))(t), "dist")
	built := get(bundle.Build(t.Context()))(t)
	for name, want := range built {
		if have, err := os.ReadFile(filepath.Join(dist, name)); err != nil || !bytes.Equal(have, want) {
			t.Errorf("console/dist/%s is not what console/src makes (%v): make console", name, err)
		}
	}
	if have := get(os.ReadDir(dist))(t); len(have) != len(built) {
		t.Errorf("console/dist has %d files, want the %d that are made", len(have), len(built))
	}
}

// The console in Chromium: its pages, acts and bad days by a gateway that says what a test wants, then by real ones with
// PostgreSQL, Redis and a chain. IMAGES names a folder for its pictures.
func TestLongTheConsoleInABrowser(t *testing.T) {
	packages := filepath.Join(get(bundle.Packages(t.Context()))(t), "node_modules")
	redis := get(redistest.Start())(t)
	t.Cleanup(func() {
		if err := redis.Close(); err != nil {
			t.Error(err)
		}
	})
	env := append(browserEnv(t), "NONCEGATE="+program, "ANVIL_PROGRAM="+get(chaintest.AnvilProgram(t.Context()))(t),
		"AXE="+filepath.Join(packages, "axe-core", "axe.min.js"), "DATABASES="+databases(t), "REDIS="+redis.URL())
	tests := get(filepath.Glob("../../console/test/*.long.mjs"))(t)
	if len(tests) == 0 {
		t.Fatal("the console has no tests")
	}
	t.Log(inFolder(t, ".", env, "node", append([]string{"--test", "--test-concurrency=1", "--test-reporter=spec"}, tests...)...))
}

// databases is a URL that hands out new databases of a PostgreSQL server of the test's own.
func databases(t *testing.T) string {
	t.Helper()
	pg := get(pgtest.Start())(t)
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := pg.CreateDatabase(r.Context())
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, pg.URL(name))
	}))
	t.Cleanup(s.Close)
	return s.URL
}
