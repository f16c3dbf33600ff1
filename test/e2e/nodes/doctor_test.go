//go:build unix

package nodes

import (
	"slices"
	"strings"
	"testing"

	"noncegate/internal/admin"
	"noncegate/test/e2e"
	"noncegate/wire"
)

// gateway doctor asks all nodes, tells once what several of them see, compares them, and ends with 1 while something is to be mended.
func TestDoctorTellsWhatIsWrongWithNodesAndServers(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c")
	examine := func(want int, args ...string) (ids []string) {
		t.Helper()
		o := e2e.Run(t, append([]string{"doctor", "--json", "--admin", f.Nodes["a"].Admin}, args...)...)
		var said struct {
			Asked    []string        `json:"asked"`
			Findings []admin.Finding `json:"findings"`
		}
		if err := wire.Unmarshal([]byte(o.Stdout), &said); o.Code != want || err != nil {
			t.Fatalf("exit %d, stdout %s, stderr %s, %v", o.Code, o.Stdout, o.Stderr, err)
		}
		for _, found := range said.Findings {
			if found.What == "" || found.Why == "" || found.Do == "" {
				t.Errorf("it says too little: %+v", found)
			}
			ids = append(ids, found.ID)
		}
		return ids
	}
	f.Nodes["a"].Await("all shards to have owners", func() bool { return !slices.Contains(examine(0), "shards-unowned") })
	// Each node sees that the test's PostgreSQL has no replica; a is the only one that is asked.
	if got := examine(0); !slices.Contains(got, "postgres-alone") || !slices.Contains(got, "unasked-b") || !slices.Contains(got, "unasked-c") {
		t.Errorf("found %v", got)
	}
	odd := f.Launch("c", "--hold-ttl=7s")
	got := examine(1, "--also", f.Nodes["b"].Admin, "--also", odd.Admin)
	if !slices.Contains(got, "setting-hold-ttl") || slices.ContainsFunc(got, func(id string) bool { return strings.HasPrefix(id, "unasked-") }) {
		t.Errorf("found %v", got)
	}
	if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("told twice: %v", got)
	}
	odd.Stop()
	if got := examine(1, "--also", f.Nodes["b"].Admin, "--also", odd.Admin); !slices.Contains(got, "unasked-"+odd.Admin) {
		t.Errorf("found %v", got)
	}
}
