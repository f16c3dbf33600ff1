//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/pgtest"
)

// host is what figures depend on.
type host struct {
	Date       string  `json:"date"`
	System     string  `json:"system"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	FsyncMs    float64 `json:"fsyncMs"` // median, on the database's disk
}

func describeHost(ctx context.Context, pg *pgtest.Server) (host, error) {
	version, err := serverVersion(ctx, pg)
	if err != nil {
		return host{}, err
	}
	fsync, err := fsyncLatency(pg.Dir())
	if err != nil {
		return host{}, err
	}
	return host{
		Date:       time.Now().UTC().Format(time.RFC3339),
		System:     runtime.GOOS + "/" + runtime.GOARCH,
		CPU:        cpuModel(),
		Cores:      runtime.NumCPU(),
		Go:         runtime.Version(),
		PostgreSQL: version,
		FsyncMs:    float64(fsync.Microseconds()) / 1000,
	}, nil
}

func serverVersion(ctx context.Context, pg *pgtest.Server) (version string, err error) {
	conn, err := pgx.Connect(ctx, pg.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}

// cpuModel is what Linux calls the processor, empty elsewhere.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(info), "model name\t: ")
	model, _, _ := strings.Cut(rest, "\n")
	return model
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
func (h host) String() string {
	return fmt.Sprintf("%s, %s, %d cores %s, %s, PostgreSQL %s, fsync %.2f ms (median)",
		h.Date, h.System, h.Cores, h.CPU, h.Go, h.PostgreSQL, h.FsyncMs)
}
