//go:build unix

package redistest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var server *Server

func TestMain(m *testing.M) { os.Exit(Main(m, &server)) }

// testTimeout is a safety net; nothing waits for it when things work.
const testTimeout = 30 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, what string, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func TestServerListensTwiceAndEvictsNothing(t *testing.T) {
	for name, url := range map[string]string{"tcp": server.URL(), "socket": server.SocketURL()} {
		t.Run(name, func(t *testing.T) {
			client := connect(t, url)
			got, err := client.ConfigGet(testContext(t), "maxmemory-policy").Result()
			if err != nil || got["maxmemory-policy"] != "noeviction" {
				t.Errorf("maxmemory-policy is %v, %v", got, err)
			}
		})
	}
}

func TestConnectionNeedsThePassword(t *testing.T) {
	client := connect(t, "redis://"+server.Addr()+"/0")
	if err := client.Ping(testContext(t)).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
}

func TestAsRootTheServerRunsUnderAnotherAccount(t *testing.T) {
	info, err := os.Stat(server.socket())
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("the server's socket belongs to root")
	}
}

func TestAClientLeavesAnEmptyServer(t *testing.T) {
	t.Run("writes", func(t *testing.T) {
		if err := server.Client(t).Set(testContext(t), "key", "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if n, err := server.Client(t).DBSize(testContext(t)).Result(); n != 0 || err != nil {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

func TestWhatWasWrittenSurvivesStopAndKill(t *testing.T) {
	client := server.Client(t)
	for name, end := range map[string]func() error{"stop": server.Stop, "kill": server.Kill} {
		// With everysec the server puts off its writes while it syncs.
		if err := client.ConfigSet(testContext(t), "appendfsync", "always").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Set(testContext(t), name, "kept", 0).Err(); err != nil {
			t.Fatal(err)
		}
		do(t, name, end)
		if pid := server.PID(); pid != 0 {
			t.Errorf("the PID after %s is %d, want 0", name, pid)
		}
		if err := client.Ping(testContext(t)).Err(); err == nil {
			t.Errorf("it answers after %s", name)
		}
		do(t, "restart", server.Restart)
		if got, err := client.Get(testContext(t), name).Result(); got != "kept" || err != nil {
			t.Errorf("after %s: %q, %v; want what was written", name, got, err)
		}
	}
}

func TestAPausedServerAnswersOnceItIsResumed(t *testing.T) {
	client := server.Client(t)
	do(t, "pause", server.Pause)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
		t.Errorf("a paused server answered %v, want silence", err)
	}
	do(t, "resume", server.Resume)
	if err := client.Ping(testContext(t)).Err(); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestAPausedServerCanBeKilledAndClosed(t *testing.T) {
	s, err := Start("appendonly no")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do(t, "pause", s.Pause)
	do(t, "kill", s.Kill)
	if err := s.Pause(); err == nil {
		t.Error("a server that does not run can be paused")
	}
	do(t, "restart", s.Restart)
	do(t, "pause", s.Pause)
	do(t, "close", s.Close)
	do(t, "close again", s.Close)
	if _, err := os.Stat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left behind: %v", err)
	}
	if err := s.Restart(); err == nil {
		t.Error("a closed server was started again")
	}
}

func TestWrongSettingIsReportedWithTheServersWords(t *testing.T) {
	s, err := Start("no-such-setting 1")
	if err == nil {
		s.Close()
		t.Fatal("started with a setting that does not exist")
	}
	if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error is %v, want what the server says", err)
	}
}

func TestMissingServerSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("Start: %v, want what to install", err)
	}
}

func TestASetBackServerHasForgottenItsLastWrites(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client, ctx := connect(t, s.URL()), testContext(t)
	runID := func() string {
		t.Helper()
		info, err := client.InfoMap(ctx, "server").Result()
		if err != nil {
			t.Fatal(err)
		}
		return info["Server"]["run_id"]
	}
	for _, key := range []string{"first", "last"} {
		if err := client.Set(ctx, key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	was := runID()
	// The last write is "*3 SET last x", which has more than 8 bytes.
	do(t, "set back", func() error { return s.SetBack(8) })
	got, err := client.MGet(ctx, "first", "last").Result()
	if err != nil || got[0] != "x" || got[1] != nil {
		t.Errorf("after it the first and the last write are %v, %v; want the first alone", got, err)
	}
	if now := runID(); now == was || now == "" {
		t.Errorf("its run id is %q, and was %q: it has not been started again", now, was)
	}
	do(t, "set back to nothing", func() error { return s.SetBack(1 << 30) })
	if n, err := client.DBSize(ctx).Result(); n != 0 || err != nil {
		t.Errorf("%d keys, %v; want none", n, err)
	}
}

func TestAServerThatWritesNothingCannotBeSetBack(t *testing.T) {
	s, err := Start("appendonly no")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetBack(1); err == nil || !strings.Contains(err.Error(), "no append-only file") {
		t.Errorf("SetBack: %v, want that there is no file", err)
	}
	do(t, "restart", s.Restart)
	if err := connect(t, s.URL()).Ping(testContext(t)).Err(); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestAnotherServerTakesThePasswordAndMayFollowTheFirst(t *testing.T) {
	host, port, password := server.Master()
	other, err := server.Another("replicaof "+host+" "+port, "masterauth "+password)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Addr() == server.Addr() {
		t.Fatal("it is at the address of the first")
	}
	// A client of the first is led to it by nothing but the address.
	url := strings.Replace(server.URL(), server.Addr(), other.Addr(), 1)
	client, ctx := connect(t, url), testContext(t)
	if err := server.Client(t).Set(ctx, "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		got, err := client.Get(ctx, "key").Result()
		if got == "value" {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the replica has %q, %v; want what the first was written", got, err)
		case <-tick.C:
		}
	}
}
