//go:build unix

package sqlite

import (
	"context"
	_ "embed"
	"path/filepath"

	"noncegate/test/lab/gateway"
)

//go:embed testdata/tracingvfs.go
var tracingVFS string

// variant is a build of the gateway.
type variant struct {
	name    string
	patches []gateway.Patch
}

// busyCheckpoints writes the log back every 50 pages, so that a run of a second
// crashes in and between many checkpoints. The product's 8192 pages are never
// reached in that time.
var busyCheckpoints = gateway.Patch{File: "nonce/sqlite/sqlite.go", Old: "checkpointPages = 8192", New: "checkpointPages = 50"}

// traced has the store run on the tracing file system, and lets the trace see what the
// store writes without SQLite. It is part of every variant.
var traced = []gateway.Patch{
	{File: "nonce/sqlite/tracingvfs.go", New: tracingVFS},
	{File: "nonce/sqlite/file.go", Old: "func rewrite(f *os.File) error {\n", New: "func rewrite(of *os.File) error {\n\tf := tracedLog{of}\n"},
}

var (
	// asItIs is the product, but for the trace.
	asItIs = variant{name: "as-it-is"}
	// checkpointing is the product with many checkpoints.
	checkpointing = variant{name: "checkpointing", patches: []gateway.Patch{busyCheckpoints}}
)

// all are the patches of the variant.
func (v *variant) all() []gateway.Patch {
	return append(traced[:len(traced):len(traced)], v.patches...)
}

// build builds the variant into a folder and returns its path.
func (v *variant) build(ctx context.Context, dir string) (string, error) {
	exe := filepath.Join(dir, "gateway-"+v.name)
	return exe, gateway.Build(ctx, exe, v.all())
}
