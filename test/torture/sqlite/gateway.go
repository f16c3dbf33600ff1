//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
)

// launcher starts gateways on one file, one at a time.
type launcher struct {
	room                                 *guarded.Room
	program, store, mode, trace, control string
	starts                               int
}

const (
	startTimeout  = 30 * time.Second
	giveUpTimeout = 15 * time.Second // until a gateway ends that cannot use its disk
)

// start starts a gateway and returns when it serves. When it ends instead, that is
// guarded.ErrEnded and the gateway is returned nevertheless.
func (l *launcher) start(ctx context.Context) (*gateway.Gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l.starts++
	return gateway.Start(ctx, l.room, gateway.Config{
		Program: l.program, Log: fmt.Sprintf("gateway-%d.log", l.starts),
		Env: []string{"PATH=" + os.Getenv("PATH"), "NONCEGATE_TORTURE_TRACE=" + l.trace, "NONCEGATE_TORTURE_CONTROL=" + l.control},
		Args: []string{
			"--node-id=n", "--store=sqlite:" + l.store, "--mode=" + l.mode,
			"--workers=2", "--lease-ttl=1s", "--sweep-interval=100ms", "--max-holds=4096", "--drain-timeout=5s",
		},
	})
}

// endsWithASentence waits for a gateway that met a disk it could not use to end by itself,
// with a failure, and a last line that says why. One that does not is killed.
func endsWithASentence(g *gateway.Gateway, part string) error {
	select {
	case <-g.Exited():
	case <-time.After(giveUpTimeout):
		return errors.Join(fmt.Errorf("the gateway did not end within %v", giveUpTimeout), g.Kill())
	}
	log, code := strings.TrimSpace(g.Log()), 0
	if exit, ok := errors.AsType[*exec.ExitError](g.Err()); ok {
		code = exit.ExitCode()
	}
	last := log[strings.LastIndexByte(log, '\n')+1:]
	if code <= 0 || !strings.Contains(last, part) {
		return fmt.Errorf("the gateway ended with code %d and %q, want a failure and %q", code, last, part)
	}
	return nil
}

// alarming is a line that says that the store is not as the rules left it.
func alarming(line string) bool {
	return strings.Contains(line, "invariant") || strings.Contains(line, "went back") || strings.Contains(line, "malformed")
}
