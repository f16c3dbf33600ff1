package interop

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"noncegate/test/interop/bundle"
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
