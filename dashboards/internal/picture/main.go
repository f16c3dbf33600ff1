//go:build unix

// Command picture draws the dashboards as they look over two gateways under load, so
// that a reader knows what to expect. It starts the gateways, a PostgreSQL, a
// Prometheus and a load of its own, asks every query of every panel as Grafana would, and lets headless
// Chromium make pictures of the answers. They are no screenshots of Grafana.
//
// Run it in the folder dashboards: go run ./internal/picture
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
	"noncegate/internal/guarded"
)

const (
	every  = time.Second     // between two scrapes, and two points of a line
	window = 5 * time.Second // of the rates
	warmUp = 8               // scrapes before the picture begins
)

func main() {
	root := flag.String("root", "..", "the folder of the gateway's sources")
	out := flag.String("out", "images", "the folder for the pictures")
	length := flag.Duration("for", 75*time.Second, "the time that the pictures show")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *out, *length); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run draws all dashboards. What it started has ended when it returns.
func run(ctx context.Context, root, out string, length time.Duration) (err error) {
	room, err := guarded.Open("picture-", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, room.Close()) }()
	// They soon find a client slow.
	gateways, err := rig.StartCluster(ctx, room, root, 2, "--slow-after=3s", "--max-inflight=100")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateways.Stop()) }()
	prometheus, err := rig.StartPrometheus(ctx, room, rig.PrometheusConfig{Targets: gateways.Admins(), Every: every})
	if err != nil {
		return err
	}
	load := rig.StartLoad(gateways.Nodes[0].WS, rig.LoadConfig{
		Clients: 12, Signers: 40, Pause: 6 * time.Millisecond, Wave: length / 2, Lazy: true, Flood: 150,
	})
	err = prometheus.AwaitScrapes(ctx, warmUp+int(length/every))
	now := time.Now()
	if err == nil {
		err = drawAll(ctx, prometheus, room.Dir(), out, now.Add(-length), now)
	}
	return errors.Join(err, load.Stop(), prometheus.Stop())
}

func drawAll(ctx context.Context, p *rig.Prometheus, dir, out string, from, to time.Time) error {
	for _, b := range boards.All() {
		page, height, err := pageOf(ctx, p, b, from, to)
		if err != nil {
			return fmt.Errorf("draw %s: %w", b.File, err)
		}
		name := b.File[:len(b.File)-len(filepath.Ext(b.File))]
		path := filepath.Join(dir, name+".html")
		if err := os.WriteFile(path, page, 0o644); err != nil {
			return err
		}
		if err := photograph(ctx, dir, path, filepath.Join(out, name+".png"), height); err != nil {
			return fmt.Errorf("picture of %s: %w", b.File, err)
		}
	}
	return nil
}
