package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// Patch is a replacement in a copy of a source file: Old, which must occur exactly once, so
// that a patch never goes stale unseen, becomes New. Without Old, the file is New.
type Patch struct {
	File     string // relative to the module; below $GOROOT for the standard library
	Old, New string
}

// Build builds the gateway of this repository from its sources, with the patches applied, as the file exe. It touches neither the
// module nor the standard library. The working directory must be in a module that knows this one.
func Build(ctx context.Context, exe string, patches []Patch, flags ...string) error {
	if err := lookAtSources(); err != nil {
		return err
	}
	return build(ctx, exe+".overlay", patches, append(slices.Clone(flags), "-o", exe, "./cmd/gateway")...)
}

// build runs go build in the module. It makes the folder dir for the patched copies, if there are any.
func build(ctx context.Context, dir string, patches []Patch, args ...string) error {
	module, err := Module(ctx)
	if err != nil {
		return err
	}
	if len(patches) > 0 {
		overlay, err := Overlay(ctx, dir, patches)
		if err != nil {
			return err
		}
		args = append([]string{"-overlay", overlay}, args...)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	cmd.Dir = module
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", args[len(args)-1], err, said)
	}
	return nil
}

// Program builds the gateway of this repository as this program was built, in the module's bin/test, and returns its path. It is not
// built again while it is up to date, so tests of many packages link it once.
func Program(ctx context.Context) (exe string, err error) {
	module, err := Module(ctx)
	if err != nil {
		return "", err
	}
	flags := FlagsOfThis()
	exe = filepath.Join(module, "bin", "test", "gateway"+strings.Join(flags, ""))
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		return "", err
	}
	alone := flock.New(exe + ".lock") // packages are tested at a time
	if err := alone.Lock(); err != nil {
		return "", fmt.Errorf("build the gateway: %w", err)
	}
	return exe, errors.Join(Build(ctx, exe, nil, flags...), alone.Close())
}

// Compile compiles the Go packages that the patches are in, with the patches applied, into nothing. It makes the folder dir for the
// patched copies. A patch of another file is applied only.
func Compile(ctx context.Context, dir string, patches []Patch) error {
	args := []string{"-o", os.DevNull}
	for _, p := range patches {
		if pkg, ofGo := strings.CutPrefix(path.Dir(p.File), "$GOROOT/src/"); ofGo {
			args = append(args, pkg)
		} else if path.Ext(p.File) == ".go" {
			args = append(args, "./"+pkg)
		}
	}
	if len(args) == 2 {
		_, err := Overlay(ctx, dir, patches)
		return err
	}
	return build(ctx, dir, patches, args...)
}

// FlagsOfThis are the flags that this program was built with and a gateway should be too: the race detector, or none.
func FlagsOfThis() []string {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}

// Module is the folder of this repository's module.
func Module(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "noncegate").Output()
	if err != nil {
		return "", fmt.Errorf("find the gateway's sources: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Overlay writes the patched copies of source files into a folder, which it makes, and
// returns the file there that go build -overlay reads.
func Overlay(ctx context.Context, dir string, patches []Patch) (string, error) {
	module, err := Module(ctx)
	if err != nil {
		return "", err
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	texts := make(map[string]string)
	for _, p := range patches {
		path := filepath.Join(module, p.File)
		if rest, ok := strings.CutPrefix(p.File, "$GOROOT/"); ok {
			path = filepath.Join(strings.TrimSpace(string(goroot)), rest)
		}
		if err := p.apply(path, texts); err != nil {
			return "", err
		}
	}
	replace := make(map[string]string)
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, data, 0o644)
}

// apply replaces in the text of path, which is read when texts does not have it.
func (p *Patch) apply(path string, texts map[string]string) error {
	if p.Old == "" {
		texts[path] = p.New
		return nil
	}
	if _, read := texts[path]; !read {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("patch: %w", err)
		}
		texts[path] = string(text)
	}
	if n := strings.Count(texts[path], p.Old); n != 1 {
		return fmt.Errorf("patch %s: the text to be replaced occurs %d times, want once:\n%s", p.File, n, p.Old)
	}
	texts[path] = strings.Replace(texts[path], p.Old, p.New, 1)
	return nil
}

// ofGateway lists the files of this module that the gateway is built from.
const ofGateway = `{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}{{end}}`

// lookAtSources has Go's test cache run the tests again when a source of the gateway has changed: it knows of the files that a test
// itself looks at, and of no others. It minds no files outside the module of the tests, so those of
// test/interop are run with -count=1.
var lookAtSources = sync.OnceValue(func() error {
	module, err := Module(context.Background())
	if err != nil {
		return err
	}
	list := exec.Command("go", "list", "-deps", "-f", ofGateway, "./cmd/gateway")
	list.Dir = module // the tests may be of another module, which does not know all that the gateway is built from
	files, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the gateway's sources: %w", err)
	}
	for file := range strings.FieldsSeq(string(files)) {
		_, _ = os.Stat(file) // what it says goes into the cache
	}
	return nil
})
