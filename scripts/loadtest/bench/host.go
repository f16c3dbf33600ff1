//go:build unix

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"noncegate/scripts/loadtest/result"
)

// Host is what figures depend on.
type Host struct {
	Date       string  `json:"date"`
	CPU        string  `json:"cpu"` // "": the system does not tell
	Cores      int     `json:"cores"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	Commit     string  `json:"commit"`  // "": git cannot tell; with a plus: the tree was changed since
	FsyncMs    float64 `json:"fsyncMs"` // median, on the database's disk
}

var cpuModel = regexp.MustCompile(`model name\t: (.*)`)

func describeHost(ctx context.Context, a *arena) (h Host, err error) {
	h = Host{Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(), Go: runtime.Version()}
	info, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if model := cpuModel.FindSubmatch(info); model != nil {
		h.CPU = string(model[1])
	}
	if head, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty=+", "--exclude=*").Output(); err == nil {
		h.Commit = strings.TrimSpace(string(head))
	}
	if err := a.admin.QueryRow(ctx, "SHOW server_version").Scan(&h.PostgreSQL); err != nil {
		return h, err
	}
	h.FsyncMs, err = fsyncMs(a.pg.Dir())
	return h, err
}

// String is the host for people.
func (h Host) String() string {
	return fmt.Sprintf("%s, %d cores %s, %s, PostgreSQL %s, commit %s, an fsync takes %.2f ms (median)",
		h.Date, h.Cores, h.CPU, h.Go, h.PostgreSQL, h.Commit, h.FsyncMs)
}

// fsyncMs is the median time of writing a page of a log and syncing it, as a commit does.
func fsyncMs(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8<<10)
	var took []float64
	for range 100 {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	return result.Median(took), nil
}
