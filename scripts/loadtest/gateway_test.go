//go:build unix

package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/target"
	"noncegate/test/lab/guarded"
)

// gatewayAt is where a gateway of a test is, and how it is started.
type gatewayAt struct {
	url, ready, metrics, command string
}

// newGateway chooses the addresses of a gateway. store may be empty.
func newGateway(t *testing.T, store string, flags ...string) gatewayAt {
	t.Helper()
	if store == "" {
		store = "sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	}
	listen, admin := freeAddress(t), freeAddress(t)
	words := append([]string{target.Program, "serve", "--listen=" + listen, "--admin-listen=" + admin, "--store='" + store + "'", "--max-holds=4096"}, flags...)
	return gatewayAt{
		url: "ws://" + listen + "/ws", ready: "http://" + admin + "/readyz", metrics: "http://" + admin + "/metrics",
		command: strings.Join(words, " "),
	}
}

func (g gatewayAt) start(t *testing.T) {
	t.Helper()
	words, err := process.Split(g.command)
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(words, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(drillTimeout); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), drillTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, process.AnswersOK(g.ready)); err != nil {
		t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := guarded.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
