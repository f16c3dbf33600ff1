//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// endTimeout bounds the end of a gateway that was told to end.
const endTimeout = 15 * time.Second

// node is one gateway: a process that can be ended and started again under the same id and URL, and the proxies it is behind.
type node struct {
	id, url string // url is where clients and other nodes reach it

	basic atomic.Bool // it serves in mode basic from its next start on, else worker-queue

	room      *guarded.Room
	exe       string
	args, env []string
	file      *fileSide     // nil: its store is PostgreSQL
	setsBack  bool          // its store may lose what it had confirmed
	db        *pgtest.Proxy // between it and PostgreSQL; nil: its store is a file, or a PostgreSQL that fails over
	net       *pgtest.Proxy // between its clients, the other nodes and it
	redis     *pgtest.Proxy // between it and Redis; nil: it has none

	away sync.Mutex // held by a fault from the node's end to its next start

	mu       sync.Mutex // guards what follows; held while starting and ending
	proc     *gateway.Gateway
	starts   int
	problems []string
}

// startTries is how often a process is started that ends at once for a reason that passes.
const startTries = 20

// start begins the process and returns once it serves, or ctx ends. As a service manager
// does, it starts one again that ended because the store or its address was not to be had.
func (n *node) start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range startTries {
		n.starts++
		c := gateway.Config{Program: n.exe, Log: n.log(n.starts), Env: n.env, Args: append([]string{"--mode=" + n.mode()}, n.args...)}
		if n.file != nil {
			c.Env = slices.Concat(n.env, n.file.env())
		}
		var g *gateway.Gateway
		if g, err = gateway.Start(ctx, n.room, c); g != nil {
			n.proc = g
		}
		if err == nil || !n.passes(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.id, err)
	}
	return nil
}

// passes reports whether a process that ended at its start may be lucky the next time.
func (n *node) passes(err error) bool {
	said := err.Error()
	away := n.file == nil && strings.Contains(said, ": store (") || strings.Contains(said, "address already in use")
	return away && errors.Is(err, guarded.ErrEnded)
}

func (n *node) log(start int) string { return fmt.Sprintf("%s-%d.log", n.id, start) }

func (n *node) mode() string {
	if n.basic.Load() {
		return "basic"
	}
	return "worker-queue"
}

// poll is how often something is looked at that has no signal.
const poll = 10 * time.Millisecond

// end ends the process by a signal. A process that had ended by itself is a problem of the run.
func (n *node) end(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return
	}
	select {
	case <-n.proc.Exited():
		n.wrongLocked("it ended by itself: %v\n%s", n.proc.Err(), n.proc.LogTail(2000))
	default:
		if err := n.proc.End(sig, endTimeout); err != nil {
			n.wrongLocked("%v\n%s", err, n.proc.LogTail(2000))
		}
	}
	n.proc = nil
}

// wrong notes a problem of the run that is not in its history.
func (n *node) wrong(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wrongLocked(format, args...)
}

func (n *node) wrongLocked(format string, args ...any) {
	n.problems = append(n.problems, n.id+": "+fmt.Sprintf(format, args...))
}

// admin is the URL of its private side; "" without a process.
func (n *node) admin() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return ""
	}
	return n.proc.Admin
}

func (n *node) signal(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		_ = n.proc.Signal(sig) // it may have ended, which its end tells
	}
}

// found lists what is wrong with the node apart from its answers: that it ended by
// itself, and what its logs say of races and panics.
func (n *node) found() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.problems
	for i := range n.starts {
		log, err := os.ReadFile(filepath.Join(n.room.Dir(), n.log(i+1)))
		if err != nil {
			found = append(found, err.Error())
		}
		for _, alarm := range gateway.Alarms(string(log), func(line string) bool {
			return alarming(line) && !(n.setsBack && strings.Contains(line, wentBack))
		}) {
			found = append(found, fmt.Sprintf("the log of %s says %s", n.id, alarm))
		}
	}
	return found
}

// wentBack is in what a gateway says when its store lost what it had confirmed.
const wentBack = "the store went back"

// alarming: commits that PostgreSQL refused as a whole because it was being ended
// or because of a lock say nothing about the rules; a broken invariant does.
func alarming(line string) bool {
	if strings.Contains(line, "a commit was aborted") {
		return strings.Contains(line, "a row is not as the rules left it")
	}
	return slices.ContainsFunc([]string{wentBack, "the row of a signer cannot be read", "malformed"}, func(alarm string) bool {
		return strings.Contains(line, alarm)
	})
}

// close frees what the node holds but its room.
func (n *node) close() (err error) {
	for _, p := range []*pgtest.Proxy{n.db, n.net, n.redis} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	return err
}
