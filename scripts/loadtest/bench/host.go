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
	System     string  `json:"system"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Memory     float64 `json:"memoryBytes"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	Redis      string  `json:"redis,omitempty"` // when it takes part
	Commit     string  `json:"commit"`
	FsyncMs    float64 `json:"fsyncMs"` // median, on the database's disk
}

func describeHost(ctx context.Context, a *arena) (Host, error) {
	h := Host{
		Date:   time.Now().UTC().Format(time.RFC3339),
		System: runtime.GOOS + "/" + runtime.GOARCH,
		CPU:    cpuModel(),
		Cores:  runtime.NumCPU(),
		Memory: memoryBytes(),
		Go:     runtime.Version(),
		Commit: commit(ctx),
	}
	if err := a.admin.QueryRow(ctx, "SHOW server_version").Scan(&h.PostgreSQL); err != nil {
		return Host{}, err
	}
	if a.usesRedis() {
		h.Redis = redisVersion(ctx)
	}
	fsync, err := fsyncLatency(a.pg.Dir())
	h.FsyncMs = float64(fsync.Microseconds()) / 1000
	return h, err
}

// commit is what the tree is built from, with a plus when it was changed since,
// and empty where git cannot tell.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	mark := ""
	if err != nil || len(changed) > 0 {
		mark = "+"
	}
	return strings.TrimSpace(string(head)) + mark
}

// redisVersion is the version in what redis-server says of itself.
func redisVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	version, _, _ := strings.Cut(rest, " ")
	return version
}

// cpuModel is what Linux calls the processor, empty elsewhere.
func cpuModel() string {
	model, _, _ := strings.Cut(procField("/proc/cpuinfo", "model name\t: "), "\n")
	return model
}

// memoryBytes is the machine's memory, 0 where /proc does not tell.
func memoryBytes() (kib float64) {
	fmt.Sscan(procField("/proc/meminfo", "MemTotal:"), &kib) // 0 when it is not there
	return kib * 1024
}

// procField is what follows the first of a name in a file, empty when there is
// none.
func procField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), name)
	return rest
}

// fsyncLatency is the median time of writing a page of a log and syncing it, as
// a commit does, over at most a second.
func fsyncLatency(dir string) (time.Duration, error) {
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
	return took[len(took)/2], nil
}

// String is the host for people.
func (h Host) String() string {
	parts := []string{h.Date, h.System, fmt.Sprintf("%d cores", h.Cores)}
	if h.CPU != "" {
		parts[2] += " " + h.CPU
	}
	if h.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", h.Memory/(1<<30)))
	}
	parts = append(parts, h.Go, "PostgreSQL "+h.PostgreSQL)
	if h.Redis != "" {
		parts = append(parts, "Redis "+h.Redis)
	}
	if h.Commit != "" {
		parts = append(parts, "commit "+h.Commit)
	}
	return strings.Join(append(parts, fmt.Sprintf("an fsync takes %.2f ms (median)", h.FsyncMs)), ", ")
}
