//go:build unix

package redisdb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }

const patience = 45 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, address string) *DB {
	t.Helper()
	db, err := Open(testContext(t), address, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Check(t, db.Close())
	})
	return db
}

// refusal is the sentence of an Open that must fail.
func refusal(t *testing.T, address string) error {
	t.Helper()
	db, err := Open(testContext(t), address, slog.New(slog.DiscardHandler))
	if err == nil {
		db.Close()
		t.Fatal("it was opened")
	}
	return err
}

func start(t *testing.T, settings ...string) *redistest.Server {
	t.Helper()
	s, err := redistest.Start(settings...)
	expect.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAWrongAddressIsSaidWithoutShowingIt(t *testing.T) {
	for address, want := range map[string]error{
		"":                                           errScheme,
		"localhost:6379":                             errScheme,
		"http://:secret@localhost":                   errScheme,
		"redis+sentinel://:secret@a,b":               errScheme,
		"redis+cluster://:secret@a:1,b:2":            errScheme,
		"redis://":                                   errForm,
		"redis://:secret%@localhost":                 errForm,
		"redis://:secret@localhost:notaport":         errForm,
		"redis://:secret@localhost/notanumber":       errForm,
		"redis://:secret@localhost/1/2":              errForm,
		"unix://":                                    errForm,
		"redis://:secret@localhost?max_retries=3":    errUnknown,
		"redis://:secret@localhost?dial_timeout=0":   errTimes,
		"redis://:secret@localhost?read_timeout=1h":  errTimes,
		"redis://:secret@localhost?pool_size=100000": errPool,
	} {
		if err := CheckURL(address); !errors.Is(err, want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %v", address, err, want)
		}
	}
}

func TestAnAddressIsUnderstood(t *testing.T) {
	one, err := parse("rediss://user:p%40ss@cache.internal:7000/3?read_timeout=300ms&pool_size=5")
	if err != nil || one.Addr != "cache.internal:7000" || one.Username != "user" || one.Password != "p@ss" || one.DB != 3 || one.TLSConfig == nil ||
		one.TLSConfig.ServerName != "cache.internal" || one.ReadTimeout != 300*time.Millisecond || one.MaxActiveConns != 5 || one.DialTimeout != defaultTimeout {
		t.Errorf("%+v, %v", one, err)
	}
	if one, err = parse("unix:///run/redis.sock?db=2"); err != nil || one.Addr != "/run/redis.sock" || one.Network != "unix" || one.DB != 2 {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestAServerIsCheckedAndItsFactsAreLogged(t *testing.T) {
	for _, address := range []string{server.URL(), server.SocketURL()} {
		var log bytes.Buffer
		db, err := Open(testContext(t), address, slog.New(slog.NewTextHandler(&log, nil)))
		expect.Must(t, err)
		defer db.Close()
		s, err := db.Check(testContext(t))
		expect.Must(t, err)
		if len(s.RunID) != 40 || len(s.ReplicationID) != 40 || s.Role != "master" || !strings.HasPrefix(s.Version, "7.") && !strings.HasPrefix(s.Version, "8.") ||
			!s.AOF || s.Fsync != "everysec" || s.Replicas != 0 || s.Policy != "noeviction" {
			t.Errorf("facts %+v", s)
		}
		if u, _ := url.Parse(address); !strings.Contains(log.String(), s.RunID) || strings.Contains(log.String(), password(u)) {
			t.Errorf("logged: %s", log.String())
		}
	}
}

func password(u *url.URL) string {
	p, _ := u.User.Password()
	return p
}

func TestARedisThatDoesNotAnswerIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	defer l.Close() // takes connections and says nothing
	gone := start(t)
	expect.Must(t, gone.Stop())
	for _, address := range []string{
		gone.URL(), "redis://:secret@" + l.Addr().String() + "?read_timeout=50ms", "unix:///nowhere",
	} {
		if err := refusal(t, address); !errors.Is(err, errAway) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want that it is away", err)
		}
	}
}

func TestAWrongPasswordIsSaidAndNotShown(t *testing.T) {
	for address, want := range map[string]string{
		"redis://:secret@" + server.Addr():     "refuses the user or password",
		"redis://bob:secret@" + server.Addr():  "refuses the user or password",
		"redis://" + server.Addr():             "wants a password",
		"redis://:secret@" + old(t, "no auth"): "refuses the user or password",
	} {
		if err := refusal(t, address); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || errors.Is(err, errAway) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// old speaks as much of Redis' protocol as it takes to say that it is version 6.2,
// or that it wants no password. It returns its address.
func old(t *testing.T, auth string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { speak(c, auth) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

func speak(c net.Conn, auth string) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		head, err := in.ReadString('\n')
		if err != nil {
			return
		}
		n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "*")))
		words := make([]string, n)
		for i := range words {
			if _, err = in.ReadString('\n'); err == nil {
				words[i], err = in.ReadString('\n')
			}
			if err != nil {
				return
			}
			words[i] = strings.ToLower(strings.TrimSpace(words[i]))
		}
		reply := "-ERR unknown command\r\n"
		switch {
		case words[0] == "auth" && auth != "":
			reply = "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n"
		case words[0] == "info":
			text := "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n"
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

func TestWhatWouldLoseOrRefuseWritesIsRefused(t *testing.T) {
	master := start(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	u, _ := url.Parse(master.URL())
	replica := start(t, "replicaof "+host+" "+port, "masterauth "+password(u))
	member := start(t, "cluster-enabled yes")
	for address, want := range map[string]string{
		"redis://" + old(t, ""): `is Redis "6.2.14": 7.0 is the oldest version`,
		replica.URL():           "is a read-only replica",
		start(t, "maxmemory 100mb", "maxmemory-policy volatile-lru").URL(): `the maxmemory-policy "volatile-lru"`,
		member.URL(): "belongs to a Redis Cluster",
	} {
		if err := refusal(t, address); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestACommandWithoutAnAnswerIsNotSentAgain: it may have run.
func TestACommandWithoutAnAnswerIsNotSentAgain(t *testing.T) {
	ctx := testContext(t)
	db := open(t, server.URL()+"?read_timeout=2s")
	client := db.Client()
	expect.Must(t, client.Set(ctx, "n", 0, 0).Err())
	for range 5 { // connections for the pool to keep, over which it could be sent again
		c := client.Conn()
		defer c.Close()
		expect.Must(t, c.Ping(ctx).Err())
	}
	expect.Must(t, server.Pause())
	var said redis.Error
	if err := client.Incr(ctx, "n").Err(); err == nil || errors.As(err, &said) {
		t.Errorf("a paused server: %v, want that it is unknown", err)
	}
	expect.Must(t, server.Resume())
	if n, err := client.Get(ctx, "n").Int(); n > 1 || err != nil {
		t.Errorf("counted %d times, %v", n, err)
	}
}
