//go:build unix

package redistest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
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
