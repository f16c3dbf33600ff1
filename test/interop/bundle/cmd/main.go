// Command cmd checks the console's types, and writes its dist.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"noncegate/test/interop/bundle"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if err := bundle.Check(ctx); err != nil {
		return err
	}
	dir, err := bundle.Folder(ctx)
	if err != nil {
		return err
	}
	files, err := bundle.Build(ctx)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "dist", name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
