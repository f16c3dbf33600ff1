//go:build unix

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"noncegate/internal/testenv/guarded"
)

// Gateway is a gateway under watch.
type Gateway struct {
	WS      string // URL for clients
	Admin   string // host:port of /metrics
	process *guarded.Process
}

// Build makes the program from the sources below root and returns its path.
func Build(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "gateway")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/gateway")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway: %w\n%s", err, out)
	}
	return path, nil
}

var greeting = regexp.MustCompile(`listens on (ws://\S+)\s+\(metrics: http://(\S+)/metrics\)`)

// StartGateway starts the program as the node of that name in the room, on the store
// that the URL names, with the flags given beside those for its addresses, and
// returns once it serves. Stop ends it; so does the end of the room.
func StartGateway(ctx context.Context, room *guarded.Room, program, node, store string, flags ...string) (*Gateway, error) {
	log := node + ".log"
	args := append([]string{program, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--node-id=" + node, "--store=" + store}, flags...)
	p, err := room.Start(log, []string{}, args...) // no settings of whoever runs this
	if err != nil {
		return nil, err
	}
	g := &Gateway{process: p}
	err = poll(ctx, p, func() (bool, error) {
		said, err := os.ReadFile(filepath.Join(room.Dir(), log))
		found := greeting.FindSubmatch(said)
		if found == nil {
			return false, err
		}
		g.WS, g.Admin = string(found[1]), string(found[2])
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w\n%s", node, err, p.LogTail(2000))
	}
	return g, nil
}

// Stop lets the gateway drain and waits for its end.
func (g *Gateway) Stop() error { return end(g.process, "the gateway") }

// endTime is how long a program may take to end in order.
const endTime = 20 * time.Second

func end(p *guarded.Process, what string) error {
	if err := p.End(syscall.SIGTERM, endTime); err != nil {
		return fmt.Errorf("end %s: %w", what, err)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s ended with %w\n%s", what, err, p.LogTail(2000))
	}
	return nil
}

// again is how often a program is asked again for what must come.
const again = 50 * time.Millisecond

// poll asks until the answer is yes. It ends with an error when asking fails, the
// program has ended, or ctx is over.
func poll(ctx context.Context, p *guarded.Process, yes func() (bool, error)) error {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for {
		if ok, err := yes(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			return fmt.Errorf("it ended: %w", orNil(p.Err()))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// orNil names an end that was none too soon for the program itself.
func orNil(err error) error {
	if err == nil {
		return fmt.Errorf("exit status 0")
	}
	return err
}

// tail is the end of a text, for errors.
func tail(text []byte) []byte { return bytes.TrimSpace(text[max(0, len(text)-2000):]) }
