//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"noncegate/internal/testenv/guarded"
)

// launcher starts gateways on one file, one at a time.
type launcher struct {
	room                                 *guarded.Room
	program, store, mode, trace, control string
	starts                               int
}

// gateway is a process of the gateway under test.
type gateway struct {
	*guarded.Process
	url string
	log string // path
}

const (
	startTimeout = 30 * time.Second
	endTimeout   = 20 * time.Second
	// poll is how often a log is looked at.
	poll = 5 * time.Millisecond
)

var (
	errDidNotServe = errors.New("the gateway did not serve")
	greeted        = regexp.MustCompile(`Noncegate listens on (ws://\S+)`)
)

// start starts a gateway and returns when it serves. When it ends instead, that is
// errDidNotServe and the gateway is returned nevertheless.
func (l *launcher) start(ctx context.Context) (*gateway, error) {
	l.starts++
	log := fmt.Sprintf("gateway-%d.log", l.starts)
	// No settings of whoever runs this.
	env := []string{"PATH=" + os.Getenv("PATH"), "NONCEGATE_TORTURE_TRACE=" + l.trace, "NONCEGATE_TORTURE_CONTROL=" + l.control}
	p, err := l.room.Start(log, env, l.program,
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--node-id=n", "--store=sqlite:"+l.store, "--mode="+l.mode,
		"--workers=2", "--lease-ttl=1s", "--sweep-interval=100ms", "--max-holds=4096", "--drain-timeout=5s",
	)
	if err != nil {
		return nil, err
	}
	g := &gateway{Process: p, log: filepath.Join(l.room.Dir(), log)}
	if err := g.serves(ctx); err != nil {
		return g, errors.Join(err, g.kill())
	}
	return g, nil
}

// serves waits until the gateway says where it listens.
func (g *gateway) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(g.log)
		if err != nil {
			return err
		}
		if found := greeted.FindSubmatch(text); found != nil {
			g.url = string(found[1])
			return nil
		}
		select {
		case <-g.Exited():
			return fmt.Errorf("%w: %s", errDidNotServe, text)
		case <-ctx.Done():
			return fmt.Errorf("wait for the gateway to serve: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// kill ends the process at once and waits for its end. It may have ended already.
func (g *gateway) kill() error { return g.End(syscall.SIGKILL, endTimeout) }

// stop ends the process in the orderly way.
func (g *gateway) stop() error { return g.End(syscall.SIGTERM, endTimeout) }

// ended waits for the process to end by itself. One that does not is killed.
func (g *gateway) ended(within time.Duration) error {
	select {
	case <-g.Exited():
		return nil
	case <-time.After(within):
		return errors.Join(fmt.Errorf("the gateway did not end within %v", within), g.kill())
	}
}

// says is all that the process wrote.
func (g *gateway) says() string {
	text, err := os.ReadFile(g.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// crashed reports what must not be in a log: a panic, or an alarm that the store
// is not as the rules left it.
func (g *gateway) crashed() string {
	for line := range strings.Lines(g.says()) {
		for _, bad := range []string{"panic", "fatal error", "goroutine ", "invariant", "went back", "malformed"} {
			if strings.Contains(line, bad) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// endedWithASentence checks how a process ended that met a disk it could not use:
// with a failure, and a last line that says why.
func (g *gateway) endedWithASentence(part string) error {
	log, code := g.says(), 0
	if exit, ok := errors.AsType[*exec.ExitError](g.Err()); ok {
		code = exit.ExitCode()
	}
	last := log[strings.LastIndexByte(log, '\n')+1:]
	if code <= 0 || !strings.Contains(last, part) {
		return fmt.Errorf("the gateway ended with code %d and %q, want a failure and %q", code, last, part)
	}
	return nil
}
