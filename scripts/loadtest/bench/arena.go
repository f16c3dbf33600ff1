//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// postgresSettings are what the private server has beside the defaults of pgtest.
var postgresSettings = []string{"shared_buffers = 256MB", "max_wal_size = 4GB"}

// cleanTimeout bounds what is put in order after a measurement.
const cleanTimeout = time.Minute

// arena is where servers are measured: the programs, the private PostgreSQL, and a
// directory for everything they leave. It belongs to one goroutine.
type arena struct {
	room     *guarded.Room
	pg       *pgtest.Server
	admin    *pgx.Conn // to PostgreSQL, for checkpoints
	progress io.Writer
	servers  map[string]bool // kinds that take part
	filled   map[stored]filling
	runs     int // servers so far, for names of files
}

// openArena builds the programs and starts the PostgreSQL that scenes need. The
// caller must close it.
func openArena(ctx context.Context, progress io.Writer, scenes []Scene) (*arena, error) {
	room, err := guarded.Open("bench", nil)
	if err != nil {
		return nil, err
	}
	a := &arena{room: room, progress: progress, servers: make(map[string]bool), filled: make(map[stored]filling)}
	for _, s := range scenes {
		for _, side := range s.Sides {
			a.servers[side.server] = true
		}
	}
	if err := a.setUp(ctx); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *arena) setUp(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", a.room.Dir()+"/", "noncegate/cmd/gateway", "noncegate/test/refserver")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	var err error
	if a.pg, err = pgtest.Start(postgresSettings...); err != nil {
		return err
	}
	a.admin, err = pgx.Connect(ctx, a.pg.URL("postgres"))
	return err
}

func (a *arena) uses(server string) bool { return a.servers[server] }

// usesRedis reports whether a server takes part that uses Redis.
func (a *arena) usesRedis() bool {
	for kind := range a.servers {
		if kind == redisIncr || onRedis(kind) {
			return true
		}
	}
	return false
}

func (a *arena) close() error {
	var err error
	if a.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		defer cancel()
		a.admin.Close(ctx) // the server goes away too
	}
	if a.pg != nil {
		err = a.pg.Close()
	}
	return errors.Join(err, a.room.Close())
}

// settle has what earlier measurements wrote brought to disk, so that its
// write-back does not fall into the time of the next one.
func (a *arena) settle(ctx context.Context) error {
	if _, err := a.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// measure starts a side's server or cluster, loads it, and stops it. What goes
// wrong makes the sample void.
func (a *arena) measure(ctx context.Context, c Config, s Scene, side Side) Sample {
	a.runs++
	on := a.measureServer
	if len(side.nodes) > 0 {
		on = a.measureCluster
	}
	sample, err := on(ctx, c, s, side)
	if err != nil {
		sample.Void = err.Error()
	}
	return sample
}

func (a *arena) measureServer(ctx context.Context, c Config, s Scene, side Side) (sample Sample, err error) {
	st, err := a.openStore(ctx, side)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, st.release()) }()
	if err := a.settle(ctx); err != nil {
		return Sample{}, err
	}
	srv, err := a.startServer(ctx, side.server, st)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	drive := side.drive
	if drive == nil {
		drive = plain
	}
	if onRedis(side.server) {
		drive = throughRedis(drive)
	}
	load := side.loadFor(c, s.times(), srv.url)
	load.Access = srv.access
	sample, err = drive(ctx, srv, load)
	if err != nil {
		return sample, fmt.Errorf("%w\n%s", err, srv.proc.LogTail(logBytes))
	}
	return sample, nil
}
