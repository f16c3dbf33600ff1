//go:build unix

package patroni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// keeper runs Patroni ($1) with a file ($2), and ends it, and the PostgreSQL on the folder $3 that it started or left behind, when it is
// told to end.
const keeper = `
patroni=
end() {
	[ -z "$patroni" ] || kill -KILL "$patroni"
	pg=$(head -n 1 "$3/postmaster.pid")
	if [ -n "$pg" ] && [ "$(readlink "/proc/$pg/cwd")" = "$3" ]; then
		kill -CONT "$pg" $(ps -o pid= --ppid "$pg")
		kill -QUIT "$pg"
		n=0
		while kill -0 "$pg" && [ $n -lt 80 ]; do sleep 0.1; n=$((n+1)); done
		kill -KILL "$pg" $(ps -o pid= --ppid "$pg")
	fi
	exit 0
} 2>/dev/null
trap 'end "$@"' TERM
"$1" "$2" & patroni=$!
wait "$patroni"
patroni=
while :; do sleep 0.2; done
`

// endTimeout bounds the end of a member or of etcd.
const endTimeout = guarded.StartTimeout / 2

// Member is one host: Patroni and its PostgreSQL. Its methods may be called from any goroutine.
type Member struct {
	Name string
	// Replication is the proxy that standbys reach the server by; clients do not use it.
	Replication *pgtest.Proxy

	c          *Cluster
	port, rest int

	mu   sync.Mutex // guards proc; held while starting and ending
	proc *guarded.Process
}

func (m *Member) dataDir() string { return filepath.Join(m.c.room.Dir(), m.Name, "data") }
func (m *Member) addr() string    { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }
func (m *Member) restAddr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.rest))
}

// urlAs addresses a database of this member alone, as one of the roles of deploy/patroni.
func (m *Member) urlAs(role, db string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, m.c.password), Host: m.addr(), Path: "/" + db, RawQuery: "sslmode=disable&connect_timeout=2"}
	return u.String()
}

// Start starts the member, which was not started yet or was ended; it does not wait for it.
func (m *Member) Start() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc != nil {
		return fmt.Errorf("%s runs", m.Name)
	}
	m.proc, err = m.c.room.Start(m.Name+".log", guarded.PlainEnv, "/bin/sh", "-c", keeper, m.Name, m.c.patroni, filepath.Join(m.c.room.Dir(), m.Name+".yaml"), m.dataDir())
	return err
}

// Log is what Patroni of this member said.
func (m *Member) Log() string {
	text, err := os.ReadFile(filepath.Join(m.c.room.Dir(), m.Name+".log"))
	return string(text) + errorText(err)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Kill ends all processes of the member at once (SIGKILL), as a host that loses power.
func (m *Member) Kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killLocked()
}

func (m *Member) killLocked() error {
	if m.proc == nil {
		return nil
	}
	err := m.signalLocked(syscall.SIGKILL)
	err = errors.Join(err, m.proc.End(syscall.SIGTERM, endTimeout))
	m.proc = nil
	return err
}

// Pause stops all processes of the member where they stand (SIGSTOP); Resume lets them go on.
func (m *Member) Pause() error  { return m.signal(syscall.SIGSTOP) }
func (m *Member) Resume() error { return m.signal(syscall.SIGCONT) }

func (m *Member) signal(sig syscall.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proc == nil {
		return fmt.Errorf("%v to %s: it does not run", sig, m.Name)
	}
	return m.signalLocked(sig)
}

// signalLocked sends a signal to Patroni, which could start others, then to the server, which could too, and then to the server's own.
func (m *Member) signalLocked(sig syscall.Signal) error {
	send := func(pids []int) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	patroni, err := guarded.Children(m.proc.PID())
	send(patroni)
	pg := m.postmaster()
	send(pg)
	for _, parent := range append(patroni, pg...) {
		started, failed := guarded.Children(parent)
		err = errors.Join(err, failed)
		send(started)
	}
	return err
}

// postmaster is the process id of the member's server, if it runs.
func (m *Member) postmaster() []int {
	text, err := os.ReadFile(filepath.Join(m.dataDir(), "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	pid, bad := strconv.Atoi(first)
	cwd, gone := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || bad != nil || gone != nil || cwd != m.dataDir() {
		return nil
	}
	return []int{pid}
}

// Exec runs a statement on the member itself, also while its sessions are read-only.
func (m *Member) Exec(ctx context.Context, sql string) error {
	return m.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// Ask reads one value from the member itself.
func (m *Member) Ask(ctx context.Context, into any, sql string, args ...any) error {
	return m.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(into) })
}

func (m *Member) with(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, m.urlAs("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}
