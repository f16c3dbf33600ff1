package npm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/npmtest"
)

// TypeScript fills an empty folder with the package of sdk/typescript, built, beside the packages it is tested with.
func TypeScript(ctx context.Context, dir string) error {
	module, err := gateway.Module(ctx)
	if err != nil {
		return err
	}
	source := filepath.Join(module, "sdk", "typescript")
	packages, err := npmtest.Folder(ctx, "typescript", os.DirFS(source))
	if err != nil {
		return err
	}
	for _, name := range []string{"src", "test", "examples"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(source, name))); err != nil {
			return err
		}
	}
	for _, name := range []string{"package.json", "tsconfig.json", "README.md"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "node_modules/.bin/tsc", "-p", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build sdk/typescript: %w\n%s", err, out)
	}
	return nil
}
