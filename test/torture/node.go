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

// node is one gateway: a process that can be ended and started again under the same
// id and URL, and the two proxies it is behind.
type node struct {
	id, url string // where clients and other nodes reach it

	basic atomic.Bool // it serves in mode basic from its next start on, else worker-queue

	room      *guarded.Room
	exe       string
	admin     string // host:port
	args, env []string
	alarming  func(line string) bool
	db        *pgtest.Proxy // between it and PostgreSQL
	net       *pgtest.Proxy // between its clients, the other nodes and it
	redis     *pgtest.Proxy // between it and Redis; nil: it has none

	away sync.Mutex // held by a fault from the node's end to its next start

	mu       sync.Mutex // guards what follows; held while starting and ending
	proc     *guarded.Process
	starts   int
	problems []string
}

// URL is where clients and other nodes reach the node.
func (n *node) URL() string { return n.url }

// startTries is how often a process is started that ends at once for a reason that passes.
const startTries = 20

// start begins the process and returns once it serves, or ctx ends. As a service manager
// does, it starts one again that ended because the store or its address was not to be had.
func (n *node) start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range startTries {
		n.starts++
		g, starting := gateway.Start(ctx, n.room, gateway.Config{
			Program: n.exe, Log: n.log(n.starts), Env: n.env, Args: append([]string{"--mode=" + n.mode()}, n.args...),
		})
		if g == nil {
			return starting
		}
		n.proc = g.Process
		if err = starting; err == nil || !n.passes(err) {
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
	return errors.Is(err, guarded.ErrEnded) && (n.db != nil && strings.Contains(err.Error(), ": store (") || strings.Contains(err.Error(), "address already in use"))
}

// log names the output of the n-th start.
func (n *node) log(start int) string { return fmt.Sprintf("%s-%d.log", n.id, start) }

func (n *node) mode() string {
	if n.basic.Load() {
		return "basic"
	}
	return "worker-queue"
}

// poll is how often something is looked at that has no signal.
const poll = 10 * time.Millisecond

// end ends the process by a signal. A process that had ended by itself is a
// problem of the run.
func (n *node) end(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return
	}
	select {
	case <-n.proc.Exited():
		n.problems = append(n.problems, fmt.Sprintf("%s ended by itself: %v\n%s", n.id, n.proc.Err(), n.proc.LogTail(2000)))
	default:
		if err := n.proc.End(sig, endTimeout); err != nil {
			n.problems = append(n.problems, fmt.Sprintf("%s: %v\n%s", n.id, err, n.proc.LogTail(2000)))
		}
	}
	n.proc = nil
}

// runs reports whether there is a process.
func (n *node) runs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc != nil
}

// signal sends a signal to the process, if it runs.
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
		for _, alarm := range gateway.Alarms(string(log), n.alarming) {
			found = append(found, fmt.Sprintf("the log of %s says %s", n.id, alarm))
		}
	}
	return found
}

// alarming: commits that PostgreSQL refused as a whole because it was being ended
// or because of a lock say nothing about the rules; a broken invariant does.
func alarming(line string) bool {
	if strings.Contains(line, "a commit was aborted") {
		return strings.Contains(line, "a row is not as the rules left it")
	}
	return strings.Contains(line, "the store went back") || strings.Contains(line, "the row of a signer cannot be read")
}

// close frees what the node holds but its room.
func (n *node) close() error {
	err := errors.Join(n.db.Close(), n.net.Close())
	if n.redis != nil {
		err = errors.Join(err, n.redis.Close())
	}
	return err
}

// timesArgs are the settings of all gateways: their times, and that nothing is forgotten.
func timesArgs() []string {
	return []string{
		"--workers=2", "--max-holds=4096", "--log-level=info",
		"--lease-ttl=" + leaseTTL.String(), "--hold-ttl=" + holdTTL.String(), "--max-hold=" + maxHold.String(),
		"--sweep-interval=" + sweepInterval.String(), "--request-retention=0", "--consumed-retention=0",
	}
}

// newNode makes a node that is not started yet.
func newNode(room *guarded.Room, exe, id, mode, database, target string) (*node, error) {
	listen, err := guarded.FreeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := guarded.FreeAddr()
	if err != nil {
		return nil, err
	}
	db, err := pgtest.NewProxy(target)
	if err != nil {
		return nil, err
	}
	front, err := pgtest.NewProxy(listen)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	n := &node{id: id, url: "ws://" + front.Addr() + "/ws", room: room, exe: exe, admin: admin, db: db, net: front, env: os.Environ(), alarming: alarming}
	n.basic.Store(mode == "basic")
	store, err := db.URL(database)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.args = slices.Concat([]string{
		"--listen=" + listen, "--admin-listen=" + admin, "--node-id=" + id, "--advertise-url=" + n.URL(), "--store=" + store, "--drain-timeout=2s",
	}, timesArgs())
	return n, nil
}
