// Package bundle makes the web console: one page, one script and one style sheet, of console/src, of the core of
// sdk/typescript and of the npm packages that console/package-lock.json names. The same sources give the same bytes.
package bundle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/npmtest"
)

// Folder is the console's folder, whose dist is what Build makes.
func Folder(ctx context.Context) (string, error) {
	module, err := gateway.Module(ctx)
	return filepath.Join(module, "console"), err
}

// Packages is a folder whose node_modules has what the console and its tests use of npm.
func Packages(ctx context.Context) (string, error) {
	dir, err := Folder(ctx)
	if err != nil {
		return "", err
	}
	return npmtest.Folder(ctx, "console", os.DirFS(dir))
}

// Build is the console's files by their names in dist.
func Build(ctx context.Context) (map[string][]byte, error) {
	dir, err := Folder(ctx)
	if err != nil {
		return nil, err
	}
	packages, err := Packages(ctx)
	if err != nil {
		return nil, err
	}
	sdk := filepath.Join(dir, "..", "sdk", "typescript", "src")
	built := api.Build(api.BuildOptions{
		AbsWorkingDir: dir,
		EntryPointsAdvanced: []api.EntryPoint{
			{InputPath: "src/main.tsx", OutputPath: "console"},
			{InputPath: "src/console.css", OutputPath: "console"},
		},
		Outdir:            "dist",
		Bundle:            true,
		Format:            api.FormatESModule,
		Platform:          api.PlatformBrowser,
		Target:            api.ES2022,
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		Charset:           api.CharsetUTF8,
		LegalComments:     api.LegalCommentsNone,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		NodePaths:         []string{filepath.Join(packages, "node_modules")},
		Alias:             map[string]string{"noncegate": filepath.Join(sdk, "index.ts"), "#socket": filepath.Join(sdk, "socket-browser.ts")},
		LogLevel:          api.LogLevelSilent,
	})
	if len(built.Errors) > 0 {
		m, where := built.Errors[0], ""
		if m.Location != nil {
			where = fmt.Sprintf("%s:%d: ", m.Location.File, m.Location.Line)
		}
		return nil, fmt.Errorf("bundle the console: %s%s", where, m.Text)
	}
	page, err := os.ReadFile(filepath.Join(dir, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"index.html": page}
	for _, f := range built.OutputFiles {
		files[filepath.Base(f.Path)] = f.Contents
	}
	return files, nil
}

// Check has the TypeScript compiler look at the console's sources.
func Check(ctx context.Context) error {
	dir, err := Folder(ctx)
	if err != nil {
		return err
	}
	packages, err := Packages(ctx)
	if err != nil {
		return err
	}
	// The compiler finds packages from where the sources are.
	here, err := os.MkdirTemp("", "console-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(here)
	for link, to := range map[string]string{
		"console/src": filepath.Join(dir, "src"), "console/tsconfig.json": filepath.Join(dir, "tsconfig.json"),
		"node_modules": filepath.Join(packages, "node_modules"), "sdk": filepath.Join(dir, "..", "sdk"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(here, link)), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(to, filepath.Join(here, link)); err != nil {
			return err
		}
	}
	tsc := exec.CommandContext(ctx, filepath.Join(packages, "node_modules", ".bin", "tsc"), "-p", "console", "--preserveSymlinks")
	tsc.Dir = here
	if out, err := tsc.CombinedOutput(); err != nil {
		return fmt.Errorf("check the console's types: %w\n%s", err, out)
	}
	return nil
}
