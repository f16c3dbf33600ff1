//go:build unix

package pgtest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/guarded"
)

var server *Server

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(victim())
	}
	os.Exit(Main(m, &server))
}

// testTimeout is a safety net; nothing waits for it when things work.
const testTimeout = 60 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(testContext(t), sql); err != nil {
		t.Fatal(err)
	}
}

func queryString(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(testContext(t), sql).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func do(t *testing.T, what string, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestServerIsDurableAndListensTwice(t *testing.T) {
	url := server.NewDatabase(t)
	conn := connect(t, url)
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200"} {
		if got := queryString(t, conn, "SHOW "+setting); got != want {
			t.Errorf("%s = %s, want %s", setting, got, want)
		}
	}
	if got, want := queryString(t, connect(t, server.SocketURL("postgres")), "SELECT coalesce(inet_server_addr()::text, 'socket')"), "socket"; got != want {
		t.Errorf("over the socket the server's address is %s, want %s", got, want)
	}
}

func TestDatabasesAreCopiedFromTheTemplateAndDropped(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := testContext(t)
	err = s.SetTemplate(ctx, func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "CREATE TABLE marker (n int)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	databases := func() string {
		return queryString(t, connect(t, s.URL("postgres")), "SELECT count(*)::text FROM pg_database")
	}
	before := databases()
	s.keep = 1
	t.Run("use", func(t *testing.T) {
		first, second := connect(t, s.NewDatabase(t)), connect(t, s.NewDatabase(t))
		mustExec(t, first, "INSERT INTO marker VALUES (1)")
		if got := queryString(t, second, "SELECT count(*)::text FROM marker"); got != "0" {
			t.Errorf("the second database holds %s rows of the first, want 0", got)
		}
	})
	if got := databases(); got != before {
		t.Errorf("%s databases after the test, want %s", got, before)
	}
}

func TestCommittedRowsSurviveAKillAndUncommittedDoNot(t *testing.T) {
	url := server.NewDatabase(t)
	conn := connect(t, url)
	mustExec(t, conn, "CREATE TABLE kept (n int)")
	mustExec(t, conn, "INSERT INTO kept VALUES (1)")
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "INSERT INTO kept VALUES (2)")
	before := server.PID()
	do(t, "kill", server.Kill)
	if got := server.PID(); got != 0 {
		t.Errorf("PID of a killed server is %d, want 0", got)
	}
	do(t, "restart", server.Restart)
	if server.PID() == before {
		t.Errorf("PID is %d before and after", before)
	}
	if got := queryString(t, connect(t, url), "SELECT string_agg(n::text, ',') FROM kept"); got != "1" {
		t.Errorf("rows after the crash: %s, want 1", got)
	}
}

func TestPausedServerCanBeKilled(t *testing.T) {
	do(t, "pause", server.Pause)
	do(t, "kill", server.Kill)
	do(t, "restart", server.Restart)
}

// state is a process's state as ps shows it, such as T for stopped; empty when
// there is no such process.
func state(pid int) string {
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		_, rest, _ := strings.Cut(string(stat), ") ")
		return rest[:1]
	}
	out, _ := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output() // an error when there is none
	return string(out[:min(1, len(out))])
}

func TestPostgresWithoutInitdbIsNoFind(t *testing.T) {
	dir := t.TempDir()
	install := func(name string) {
		do(t, "install", func() error { return os.WriteFile(filepath.Join(dir, name), nil, 0o755) })
	}
	install("postgres")
	if got, err := binDir([]string{dir}); err == nil || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("without initdb: %q, %v; want an error that says what to install", got, err)
	}
	install("initdb")
	if got, err := binDir([]string{"/nonexistent", dir}); got != dir || err != nil {
		t.Errorf("with both: %q, %v; want %q", got, err, dir)
	}
}

// victimEnv makes the test binary start a server, say where, and wait.
const victimEnv = "PGTEST_VICTIM"

func victim() int {
	s, err := Start()
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	os.Stdout.WriteString(strconv.Itoa(s.PID()) + " " + s.Dir() + "\n")
	if os.Getenv(victimEnv) == "paused" && s.Pause() != nil {
		return 1
	}
	os.Stdout.WriteString("waiting\n")
	select {}
}

func TestLongNothingOutlivesAKilledProcess(t *testing.T) {
	for _, mode := range []string{"running", "paused"} {
		t.Run(mode, func(t *testing.T) { killVictim(t, mode) })
	}
}

func killVictim(t *testing.T, mode string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+mode)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	do(t, "start", cmd.Start)
	lines := bufio.NewScanner(out)
	lines.Scan()
	pidText, dir, _ := strings.Cut(lines.Text(), " ")
	lines.Scan()
	if lines.Text() != "waiting" {
		t.Fatalf("the victim says %q", lines.Text())
	}
	pid, err := strconv.Atoi(pidText)
	if err != nil {
		t.Fatal(err)
	}
	pids, err := guarded.Children(pid)
	if err != nil || len(pids) == 0 {
		t.Fatalf("children of %d: %v, %v", pid, pids, err)
	}
	do(t, "kill", cmd.Process.Kill)
	cmd.Wait()
	// The guard belongs to nobody now, so there is nothing to wait on but
	// what it leaves: first no process, then no directory.
	deadline := time.Now().Add(testTimeout)
	for gone := false; !gone; time.Sleep(readyPoll) {
		_, statErr := os.Stat(dir)
		gone = os.IsNotExist(statErr) && allGone(append(pids, pid))
		if time.Now().After(deadline) {
			t.Fatalf("left behind: directory %s (%v), processes %v", dir, statErr, append(pids, pid))
		}
	}
}

// allGone reports whether none of the processes is left, or only as a zombie,
// whose parent in a container may be a process that never asks.
func allGone(pids []int) bool {
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil && state(pid) != "Z" {
			return false
		}
	}
	return true
}
