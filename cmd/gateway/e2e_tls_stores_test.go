//go:build unix

package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noncegate/internal/testenv/pgtest"
	"noncegate/internal/testenv/redistest"
	"noncegate/internal/testenv/tlstest"
)

// TestLongTheStoreAndRedisAreReachedOverTLS has servers with certificates of an authority
// of its own, and gateways that trust it, or do not.
func TestLongTheStoreAndRedisAreReachedOverTLS(t *testing.T) {
	ca := tlstest.New(t, "ca")
	store := encryptedPostgres(t, ca)
	redis := encryptedRedis(t, ca)
	caFile, other := ca.WriteCA(), tlstest.New(t, "another").WriteCA()

	t.Setenv("SSL_CERT_FILE", caFile) // what Redis is trusted by
	p := launch(t, "--store="+store+"&sslmode=verify-full&sslrootcert="+caFile, "--redis="+redis)
	p.connect().allocate(account, "")
	sessions := rows(t, store+"&sslmode=require", `SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL`)
	if sessions != "(t)" {
		t.Errorf("all sessions are encrypted: %s", sessions)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit %d", code)
	}

	free := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store-wait=1s"}
	if said := refused(t, exitUsage, append(free, "--store="+store+"&sslmode=verify-full&sslrootcert="+other)...); !strings.Contains(said, "certificate") {
		t.Errorf("a store of another authority: said %s", said)
	}
	here := "--store=" + store + "&sslmode=verify-full&sslrootcert=" + caFile
	plain := strings.Replace(redis, "rediss://", "redis://", 1)
	if said := refused(t, exitUsage, append(free, here, "--redis="+plain)...); !strings.Contains(said, "--redis cannot be used") {
		t.Errorf("Redis without TLS: said %s", said)
	}
}

// encryptedPostgres takes connections over TLS only; the URL says nothing of it.
func encryptedPostgres(t *testing.T, ca *tlstest.Authority) (url string) {
	t.Helper()
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	info, err := os.Stat(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Issue(tlstest.Leaf{})
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		file := filepath.Join(s.Dir(), name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		// PostgreSQL reads only what is its own.
		if owner := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 {
			if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	execute(t, s.URL("postgres"),
		fmt.Sprintf("ALTER SYSTEM SET ssl_cert_file = '%s/cert.pem'", s.Dir()), fmt.Sprintf("ALTER SYSTEM SET ssl_key_file = '%s/key.pem'", s.Dir()),
		"ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
	return strings.Replace(s.URL("postgres"), "sslmode=disable", "application_name=tls", 1)
}

// encryptedRedis listens with TLS beside its plain port.
func encryptedRedis(t *testing.T, ca *tlstest.Authority, settings ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "redis-tls") // the server runs under another account
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Issue(tlstest.Leaf{})
	s, err := redistest.Start(append(settings, "tls-port "+port, "tls-cert-file "+file("cert.pem", cert), "tls-key-file "+file("key.pem", key),
		"tls-auth-clients no", "tls-ca-cert-file "+file("ca.pem", ca.PEM))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme, u.Host = "rediss", addr
	return u.String()
}
