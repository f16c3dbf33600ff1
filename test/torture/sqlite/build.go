//go:build unix

package sqlite

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/tracingvfs.go
var tracingVFS []byte

// edit replaces the one place of a source file where old stands.
type edit struct{ file, old, new string }

// variant is a build of the gateway.
type variant struct {
	name  string
	edits []edit
}

// busyCheckpoints writes the log back every 50 pages, so that a run of a second
// crashes in and between many checkpoints. The product's 8192 pages are never
// reached in that time.
var busyCheckpoints = edit{"nonce/sqlite/sqlite.go", "checkpointPages = 8192", "checkpointPages = 50"}

// seeLog lets the trace see what the store writes without SQLite. It is part of
// every variant.
var seeLog = edit{"nonce/sqlite/file.go", "func rewrite(f *os.File) error {\n", "func rewrite(of *os.File) error {\n\tf := tracedLog{of}\n"}

var (
	// asItIs is the product, but for the trace.
	asItIs = variant{name: "as-it-is"}
	// checkpointing is the product with many checkpoints.
	checkpointing = variant{name: "checkpointing", edits: []edit{busyCheckpoints}}
)

// build builds a variant of the gateway with the tracing file system into dir and
// returns its path. root is the module's directory. An edit whose old text is not
// found exactly once is an error, so that the variants stay what their names say.
func build(ctx context.Context, root, dir string, v variant) (string, error) {
	overlay := filepath.Join(dir, v.name+".overlay")
	if err := os.MkdirAll(overlay, 0o700); err != nil {
		return "", fmt.Errorf("build %s: %w", v.name, err)
	}
	replace, err := writeOverlay(root, overlay, v)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", v.name, err)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(overlay, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return "", fmt.Errorf("build %s: %w", v.name, err)
	}
	path := filepath.Join(dir, "gateway-"+v.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", list, "-o", path, "./cmd/gateway")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", v.name, err, out)
	}
	return path, nil
}

// writeOverlay writes the files that differ into dir and returns what replaces what.
func writeOverlay(root, dir string, v variant) (map[string]string, error) {
	vfs := filepath.Join(dir, "tracingvfs.go")
	if err := os.WriteFile(vfs, tracingVFS, 0o600); err != nil {
		return nil, err
	}
	replace := map[string]string{filepath.Join(root, "nonce", "sqlite", "tracingvfs.go"): vfs}
	for _, e := range append([]edit{seeLog}, v.edits...) {
		original := filepath.Join(root, filepath.FromSlash(e.file))
		source, changed := original, filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if replace[original] != "" {
			source = changed // a second edit of the same file
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return nil, fmt.Errorf("%s has %d places with %q, want one", e.file, n, e.old)
		}
		if err := os.WriteFile(changed, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return nil, err
		}
		replace[original] = changed
	}
	return replace, nil
}

// moduleRoot is the directory of the module that the working directory is in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}
