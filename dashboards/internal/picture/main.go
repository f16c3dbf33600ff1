//go:build unix

// Command picture draws the dashboards as they look over two gateways under load, so
// that a reader knows what to expect. It starts the gateways, a PostgreSQL, a
// Prometheus and a load of its own, asks every query of every panel as Grafana would, and
// draws the answers. They are no screenshots of Grafana.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
	"noncegate/internal/testenv/guarded"
)

const (
	every  = time.Second     // between two scrapes, and two points of a line
	window = 5 * time.Second // of the rates
	warmUp = 8               // scrapes before the picture begins
)

func main() {
	out := flag.String("out", "images", "the folder for the pictures")
	length := flag.Duration("for", 75*time.Second, "the time that the pictures show")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out, *length); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// The gateways soon find a client slow, and the doubt after a loss of Redis soon ends.
var settings = []string{
	"--chain-gap-after=2s", "--slow-after=3s", "--max-inflight=100", "--hold-ttl=5s", "--max-hold=10s",
	"--engine-grant=5s", "--engine-rehearsal=10s", "--engine-timeout=1s",
}

// run draws all dashboards: that of the performance engine while Redis serves and is
// lost, the others before. What it started has ended when it returns.
func run(ctx context.Context, out string, length time.Duration) (err error) {
	room, err := guarded.Open("picture-", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, room.Close()) }()
	gateways, err := rig.StartCluster(ctx, room, rig.ClusterConfig{Nodes: 2, Redis: true, Chain: true, Flags: settings})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gateways.Stop()) }()
	prometheus, err := rig.StartPrometheus(ctx, room, rig.PrometheusConfig{Targets: gateways.Admins(), Every: every})
	if err != nil {
		return err
	}
	load := rig.StartLoad(gateways.Nodes[0].WS, rig.LoadConfig{
		Clients: 12, Signers: 40, Pause: 6 * time.Millisecond, Wave: length / 2, Lazy: true, Flood: 150, Chain: gateways.Chain,
	})
	p := painter{prometheus: prometheus, out: out, length: length}
	isEngine := func(b boards.Board) bool { return b.UID == engineUID }
	err = p.chainLives(ctx, gateways.Chain)
	if err == nil {
		err = p.drawAll(ctx, slices.DeleteFunc(boards.All(), isEngine))
	}
	if err == nil {
		err = p.engineLives(ctx, gateways)
	}
	if err == nil {
		all := boards.All()
		err = p.drawAll(ctx, all[slices.IndexFunc(all, isEngine):][:1])
	}
	return errors.Join(err, load.Stop(), prometheus.Stop())
}

const engineUID = "noncegate-engine"

// painter draws dashboards with the last of what a Prometheus has.
type painter struct {
	prometheus *rig.Prometheus
	out        string
	length     time.Duration // of what they show
}

// scrapes is how many there are in a part of the picture.
func (p *painter) scrapes(part float64) int { return int(part * float64(p.length/every)) }

// chainLives lets a transaction get lost, so that it blocks others, and be found again,
// in the time of a picture.
func (p *painter) chainLives(ctx context.Context, chain *rig.Chain) error {
	await := func(part float64) error { return p.prometheus.AwaitScrapes(ctx, warmUp+p.scrapes(part)) }
	if err := await(0.3); err != nil {
		return err
	}
	chain.Lose()
	if err := await(0.65); err != nil {
		return err
	}
	chain.Find()
	return await(1)
}

// engineLives lets the cluster go up to the performance engine, lose Redis, and wait
// until the doubt has ended, in the time of a picture.
func (p *painter) engineLives(ctx context.Context, gateways *rig.Cluster) error {
	begun, err := p.prometheus.Scrapes(ctx)
	if err != nil {
		return err
	}
	await := func(part float64) error { return p.prometheus.AwaitScrapes(ctx, begun+p.scrapes(part)) }
	if err := await(0.1); err != nil {
		return err
	}
	if err := gateways.Switch(ctx, "performance"); err != nil {
		return err
	}
	if err := await(0.6); err != nil {
		return err
	}
	if err := gateways.LoseRedis(); err != nil {
		return err
	}
	return await(1)
}

func (p *painter) drawAll(ctx context.Context, some []boards.Board) error {
	to := time.Now()
	from := to.Add(-p.length)
	for _, b := range some {
		picture, err := drawBoard(ctx, p.prometheus, b, from, to)
		if err == nil {
			err = save(picture, filepath.Join(p.out, strings.TrimSuffix(b.File, ".json")+".png"))
		}
		if err != nil {
			return fmt.Errorf("draw %s: %w", b.File, err)
		}
	}
	return nil
}
