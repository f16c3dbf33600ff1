//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Patch is a replacement in a copy of a source file: Old, which must occur exactly
// once, so that a patch never goes stale unseen, becomes New.
type Patch struct {
	File     string // relative to the module; below $GOROOT for the standard library
	Old, New string
}

// clockEnv names the environment variable by which a gateway built with
// WrongClock is told how many nanoseconds its wall clock is ahead of the system's.
const clockEnv = "TORTURE_CLOCK_OFFSET"

// WrongClock makes the wall clock of a program wrong, not its monotonic one, by
// what clockEnv says. Without the variable nothing changes.
func WrongClock() []Patch {
	const file = "$GOROOT/src/time/time.go"
	return []Patch{
		{file, "\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"syscall\"\n"},
		{file, "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", `
var wallOffset = readWallOffset()

func readWallOffset() (seconds int64) {
	text, _ := syscall.Getenv("` + clockEnv + `")
	negative := len(text) > 0 && text[0] == '-'
	for _, digit := range text {
		if digit >= '0' && digit <= '9' {
			seconds = seconds*10 + int64(digit-'0')
		}
	}
	if negative {
		seconds = -seconds
	}
	return seconds / 1e9
}

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += wallOffset
`},
	}
}

// Build makes a gateway with the race detector from the module that the working
// directory is in, with the patches applied, and returns its path, which is
// dir/name. It does not touch the module.
func Build(ctx context.Context, dir, name string, patches ...Patch) (string, error) {
	return build(ctx, dir, name, patches, "-race")
}

// BuildPlain makes a gateway as it is released, for figures.
func BuildPlain(ctx context.Context, dir, name string) (string, error) {
	return build(ctx, dir, name, nil)
}

func build(ctx context.Context, dir, name string, patches []Patch, flags ...string) (string, error) {
	root, _, err := roots(ctx)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, name)
	args := append([]string{"build", "-o", exe}, flags...)
	if len(patches) > 0 {
		overlay, err := overlayFor(ctx, exe+".overlay", patches)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/gateway")...)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, said)
	}
	return exe, nil
}

// roots are the folders of the module and of the standard library.
func roots(ctx context.Context) (module, goroot string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD", "GOROOT").Output()
	if err != nil {
		return "", "", fmt.Errorf("go env: %w", err)
	}
	env := strings.Fields(string(out))
	if len(env) != 2 || filepath.Base(env[0]) != "go.mod" {
		return "", "", fmt.Errorf("go env says %q: not inside a module", out)
	}
	return filepath.Dir(env[0]), env[1], nil
}

// overlayFor writes the patched copies into dir and returns the file that go build
// reads.
func overlayFor(ctx context.Context, dir string, patches []Patch) (string, error) {
	module, goroot, err := roots(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	texts := make(map[string]string)
	for _, p := range patches {
		path := filepath.Join(module, p.File)
		if rest, ok := strings.CutPrefix(p.File, "$GOROOT/"); ok {
			path = filepath.Join(goroot, rest)
		}
		if err := p.apply(path, texts); err != nil {
			return "", err
		}
	}
	replace := make(map[string]string)
	for path, text := range texts {
		copied := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[path] = copied
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
