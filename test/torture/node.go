//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"noncegate/internal/testenv/guarded"
	"noncegate/internal/testenv/pgtest"
)

// endTimeout bounds the end of a gateway that was told to end.
const endTimeout = 15 * time.Second

// Node is one gateway: a process that can be ended and started again under the same
// id and URL, and the two proxies it is behind.
type Node struct {
	ID string

	basic atomic.Bool // it serves in mode basic from its next start on, else worker-queue

	room          *guarded.Room
	exe           string
	args, env     []string
	listen, admin string        // host:port
	db            *pgtest.Proxy // between it and PostgreSQL
	net           *pgtest.Proxy // between its clients, the other nodes and it
	redis         *pgtest.Proxy // between it and Redis; nil: it has none

	away sync.Mutex // held by a fault from the node's end to its next start

	mu       sync.Mutex // guards what follows; held while starting and ending
	proc     *guarded.Process
	starts   int
	problems []string
}

// URL is where clients and other nodes reach the node.
func (n *Node) URL() string { return "ws://" + n.net.Addr() + "/ws" }

// startTries is how often a process is started that ends at once for a reason that passes.
const startTries = 20

// Start begins the process and returns once it serves, or ctx ends. As a service manager
// does, it starts one again that ended because the store or its address was not to be had.
func (n *Node) Start(ctx context.Context) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range startTries {
		n.starts++
		p, starting := n.room.Start(fmt.Sprintf("%s-%d.log", n.ID, n.starts), n.env, slices.Concat([]string{n.exe, "--mode=" + n.mode()}, n.args)...)
		if starting != nil {
			return starting
		}
		n.proc = p
		if err = n.waitServing(ctx, p); err == nil || !passes(err) {
			break
		}
	}
	return err
}

// passes reports whether a process that ended at its start may be lucky the next time.
func passes(err error) bool {
	return errors.Is(err, errEndedAtStart) && (strings.Contains(err.Error(), ": store (") || strings.Contains(err.Error(), "address already in use"))
}

var errEndedAtStart = errors.New("ended at its start")

func (n *Node) mode() string {
	if n.basic.Load() {
		return "basic"
	}
	return "worker-queue"
}

// poll is how often something is looked at that has no signal.
const poll = 10 * time.Millisecond

// waitServing asks the admin side until it answers: the process is up. Whether the
// store is reachable is not asked.
func (n *Node) waitServing(ctx context.Context, p *guarded.Process) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		res, err := client.Get("http://" + n.admin + "/healthz")
		if err == nil {
			res.Body.Close()
			if conn, err := net.DialTimeout("tcp", n.listen, time.Second); err == nil {
				return conn.Close()
			}
		}
		select {
		case <-p.Exited():
			return fmt.Errorf("%s %w: %w\n%s", n.ID, errEndedAtStart, p.Err(), p.LogTail(2000))
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w\n%s", n.ID, context.Cause(ctx), p.LogTail(2000))
		case <-tick.C:
		}
	}
}

// end ends the process by a signal. A process that had ended by itself is a
// problem of the run.
func (n *Node) end(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return
	}
	select {
	case <-n.proc.Exited():
		n.problems = append(n.problems, fmt.Sprintf("%s ended by itself: %v\n%s", n.ID, n.proc.Err(), n.proc.LogTail(2000)))
	default:
		if err := n.proc.End(sig, endTimeout); err != nil {
			n.problems = append(n.problems, fmt.Sprintf("%s: %v\n%s", n.ID, err, n.proc.LogTail(2000)))
		}
	}
	n.proc = nil
}

// runs reports whether there is a process.
func (n *Node) runs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc != nil
}

// signal sends a signal to the process, if it runs.
func (n *Node) signal(sig syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		_ = n.proc.Signal(sig) // it may have ended, which its end tells
	}
}

// found lists what is wrong with the node apart from its answers: that it ended by
// itself, and what its logs say of races and panics.
func (n *Node) found() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.problems
	for i := range n.starts {
		log, err := os.ReadFile(filepath.Join(n.room.Dir(), fmt.Sprintf("%s-%d.log", n.ID, i+1)))
		if err != nil {
			found = append(found, err.Error())
		}
		for _, word := range []string{"DATA RACE", "panic", "fatal error:", "a commit was aborted", "the store went back", "the row of a signer cannot be read"} {
			if at := strings.Index(string(log), word); at >= 0 && !harmless(string(log[at:min(len(log), at+600)])) {
				found = append(found, fmt.Sprintf("the log of %s says %s", n.ID, log[max(0, at-100):min(len(log), at+1500)]))
			}
		}
	}
	return found
}

// harmless: commits that PostgreSQL refused as a whole because it was being ended
// or because of a lock say nothing about the rules; a broken invariant does.
func harmless(line string) bool {
	return strings.HasPrefix(line, "a commit was aborted") && !strings.Contains(line, "a row is not as the rules left it")
}

// close frees what the node holds but its room.
func (n *Node) close() error {
	err := errors.Join(n.db.Close(), n.net.Close())
	if n.redis != nil {
		err = errors.Join(err, n.redis.Close())
	}
	return err
}

// newNode makes a node that is not started yet.
func newNode(room *guarded.Room, exe, id, mode, database, target string) (*Node, error) {
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
	n := &Node{ID: id, room: room, exe: exe, listen: listen, admin: admin, db: db, net: front, env: os.Environ()}
	n.basic.Store(mode == "basic")
	store, err := db.URL(database)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.args = []string{
		"--listen=" + listen, "--admin-listen=" + admin, "--node-id=" + id, "--advertise-url=" + n.URL(),
		"--store=" + store, "--workers=2", "--max-holds=4096", "--log-level=info",
		"--lease-ttl=" + leaseTTL.String(), "--hold-ttl=" + holdTTL.String(), "--max-hold=" + maxHold.String(),
		"--sweep-interval=" + sweepInterval.String(), "--request-retention=0", "--consumed-retention=0", "--drain-timeout=2s",
	}
	return n, nil
}
