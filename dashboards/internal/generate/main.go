// Command generate writes the dashboards as the files that Grafana imports, into
// the folder given (default: the working directory).
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"noncegate/dashboards/internal/boards"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := write(dir); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for _, b := range boards.All() {
		text, err := b.JSON()
		if err != nil {
			return fmt.Errorf("%s: %w", b.File, err)
		}
		if err := os.WriteFile(filepath.Join(dir, b.File), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
