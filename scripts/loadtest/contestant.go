//go:build unix

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"noncegate/internal/pgtest"
)

// The servers that bench knows.
const (
	gatewayPostgres = "gateway-postgres"
	gatewaySQLite   = "gateway-sqlite"
	echo            = "echo"
	echoCoalesce    = "echo-coalesce"
	naive           = "naive"
)

// contestants is the order within a round: what is compared stands together.
var contestants = []string{echoCoalesce, echo, gatewayPostgres, naive, gatewaySQLite}

// comparisons are the ratios reported, where both servers took part.
var comparisons = [][2]string{
	{gatewayPostgres, echo},
	{gatewayPostgres, naive},
	{gatewayPostgres, echoCoalesce},
	{gatewaySQLite, gatewayPostgres},
}

// parseContestants reads a list of names separated by commas.
func parseContestants(list string) ([]string, error) {
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(contestants, name) {
			return nil, fmt.Errorf("-servers: unknown %q; known are %s", name, strings.Join(contestants, ","))
		}
	}
	return names, nil
}

// arena is where the servers are measured: binaries, database, and a directory
// for everything they leave.
type arena struct {
	dir string
	pg  *pgtest.Server
	run int // measurements so far, for names of files
}

// measure starts one server on an empty store, loads it, and stops it.
func (a *arena) measure(ctx context.Context, name string, l load) (report, error) {
	a.run++
	db, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return report{}, err
	}
	addr, err := freeAddr()
	if err != nil {
		return report{}, err
	}
	admin, err := freeAddr()
	if err != nil {
		return report{}, err
	}
	logPath := filepath.Join(a.dir, fmt.Sprintf("%02d-%s.log", a.run, name))
	args, ready := a.command(name, addr, admin, a.pg.URL(db))
	c, err := startChild(ctx, logPath, args, ready)
	if err != nil {
		return report{}, err
	}
	l.url = "ws://" + addr + "/ws"
	r, err := l.run(ctx)
	c.stop()
	if err != nil {
		return report{}, fmt.Errorf("%s: %w\n%s", name, err, c.output())
	}
	if r.Acknowledged == 0 {
		return report{}, fmt.Errorf("%s acknowledged nothing: %s", name, r)
	}
	return r, a.pg.DropDatabase(ctx, db)
}

// command is how a server is started, and how one sees that it is ready.
func (a *arena) command(name, addr, admin, database string) (args []string, ready func(context.Context) bool) {
	gateway, ref := filepath.Join(a.dir, "gateway"), filepath.Join(a.dir, "refserver")
	switch name {
	case gatewaySQLite:
		database = "sqlite:" + filepath.Join(a.dir, fmt.Sprintf("%02d.db", a.run))
		fallthrough
	case gatewayPostgres:
		return []string{gateway, "serve", "--store", database, "--listen", addr, "--admin-listen", admin, "--max-holds", "0"},
			answersOK("http://" + admin + "/readyz")
	case naive:
		return []string{ref, naive, "-listen", addr, "-database", database}, listening(addr)
	}
	return []string{ref, name, "-listen", addr}, listening(addr)
}
