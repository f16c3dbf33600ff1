//go:build unix

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Host is what figures depend on.
type Host struct {
	Date       string  `json:"date"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryKiB  float64 `json:"memoryKiB"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	Commit     string  `json:"commit"`  // "": git cannot tell; with a plus: the tree was changed since
	FsyncMs    float64 `json:"fsyncMs"` // median, on the database's disk
}

func describeHost(ctx context.Context, a *arena) (h Host, err error) {
	cpu, _, _ := strings.Cut(procField("/proc/cpuinfo", "model name\t: "), "\n")
	h = Host{Date: time.Now().UTC().Format(time.DateOnly), CPU: cpu, Cores: runtime.NumCPU(), Go: runtime.Version()}
	fmt.Sscan(procField("/proc/meminfo", "MemTotal:"), &h.MemoryKiB) // 0 when it is not there
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
	return fmt.Sprintf("%s, %d cores %s, %.0f GiB, %s, PostgreSQL %s, commit %s, an fsync takes %.2f ms (median)",
		h.Date, h.Cores, h.CPU, h.MemoryKiB/(1<<20), h.Go, h.PostgreSQL, h.Commit, h.FsyncMs)
}

// residentBytes is the resident memory of a process, 0 where /proc does not tell.
func residentBytes(pid int) float64 {
	kib := 0.0
	fmt.Sscan(procField(fmt.Sprintf("/proc/%d/status", pid), "\nVmRSS:"), &kib) // 0 when it is not there
	return kib * 1024
}

// procField is what follows the first of a name in a file, empty when there is none.
func procField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), name)
	return rest
}

// fsyncMs is the median time of writing a page of a log and syncing it, as a commit does,
// over at most a second.
func fsyncMs(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8<<10)
	var took []time.Duration
	for begin := time.Now(); len(took) < 500 && time.Since(begin) < time.Second; {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000, nil
}
