package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce/postgres"
)

// Aurora has no such function, and says so in these words.
func TestADatabaseThatDoesNotTellItsTimelineIsUsedAndSaidOnce(t *testing.T) {
	raw := server.NewDatabase(t)
	admin := dial(t, raw)
	execute(t, admin, `CREATE SCHEMA aurora`)
	execute(t, admin, `CREATE FUNCTION aurora.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'Function pg_current_wal_lsn() is currently not supported for Aurora' USING ERRCODE = '0A000'; END $$`)
	var log bytes.Buffer
	s, err := postgres.Open(t.Context(), raw+"&search_path="+url.QueryEscape("public,aurora,pg_catalog"), 2,
		postgres.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Owners(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "does not tell its timeline"); n != 1 || !strings.Contains(log.String(), "not supported for Aurora") {
		t.Errorf("the log says %d times so:\n%s", n, log.String())
	}
}

// role makes a role that owns its database, and returns the URL without a password.
func role(t *testing.T, raw, name, password string) *url.URL {
	t.Helper()
	admin := dial(t, raw)
	execute(t, admin, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, name, password))
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), `DROP OWNED BY `+name+`; DROP ROLE `+name); err != nil {
			t.Error(err)
		}
	})
	execute(t, admin, `GRANT ALL ON SCHEMA public TO `+name)
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(name)
	return u
}

// rotate changes the password of a role, and ends its connections.
func rotate(t *testing.T, raw, name, password string) {
	t.Helper()
	admin := dial(t, raw)
	execute(t, admin, fmt.Sprintf(`ALTER ROLE %s PASSWORD '%s'`, name, password))
	execute(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1`, name)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAPasswordThatWasRotatedIsReadAnew(t *testing.T) {
	for name, of := range map[string]func(*url.URL, string) (string, func(password string), postgres.Config){
		"passfile": func(u *url.URL, path string) (string, func(string), postgres.Config) {
			q := u.Query()
			q.Set("passfile", path)
			u.RawQuery = q.Encode()
			return u.String(), func(password string) { writeFile(t, path, "*:*:*:*:"+password+"\n") }, postgres.Config{}
		},
		"url": func(u *url.URL, path string) (string, func(string), postgres.Config) {
			put := func(password string) {
				with := *u
				with.User = url.UserPassword(u.User.Username(), password)
				writeFile(t, path, with.String())
			}
			return "", put, postgres.Config{URL: func() (string, error) { text, err := os.ReadFile(path); return string(text), err }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw := server.NewDatabase(t)
			user := "rotated_" + name
			given, put, cfg := of(role(t, raw, user, "first"), filepath.Join(t.TempDir(), "secret"))
			put("first")
			s, err := postgres.Open(t.Context(), given, 2, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			put("second")
			rotate(t, raw, user, "second")
			await(t, "a connection with the new password", func() bool { return s.Ping(t.Context()) == nil })
		})
	}
}

// stripper is a pooler that leaves out the settings of a session, as PgBouncer does with
// those that ignore_startup_parameters names.
func stripper(t *testing.T, target string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go strip(client, target)
		}
	}()
	return l.Addr().String()
}

func strip(client net.Conn, target string) {
	defer func() { _ = client.Close() }()
	var head [8]byte
	if _, err := io.ReadFull(client, head[:]); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-8)
	if _, err := io.ReadFull(client, body); err != nil {
		return
	}
	words := strings.Split(strings.TrimRight(string(body), "\x00"), "\x00")
	var kept strings.Builder
	for pair := range slices.Chunk(words, 2) {
		if pair[0] == "user" || pair[0] == "database" {
			kept.WriteString(pair[0] + "\x00" + pair[1] + "\x00")
		}
	}
	kept.WriteByte(0)
	binary.BigEndian.PutUint32(head[:], uint32(8+kept.Len()))
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if _, err := server.Write(append(head[:], kept.String()...)); err != nil {
		return
	}
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	_, _ = io.Copy(client, server)
}

func TestAPoolerThatLeavesOutTheSettingsOfASessionIsNamed(t *testing.T) {
	raw := server.NewDatabase(t)
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = stripper(t, u.Host)
	_, err = postgres.Open(t.Context(), u.String(), 2, postgres.Config{})
	pooler, ok := errors.AsType[*postgres.PoolerError](err)
	if !ok || postgres.Away(err) || !strings.Contains(pooler.Error(), "PgBouncer") || !strings.Contains(pooler.Error(), " was asked for as ") {
		t.Errorf("got %v", err)
	}
	if _, err := pgx.Connect(t.Context(), u.String()); err != nil {
		t.Errorf("the pooler itself works: %v", err)
	}
}
