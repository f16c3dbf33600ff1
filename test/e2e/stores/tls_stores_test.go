//go:build unix

package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/tlstest"
)

// TestLongTheStoreIsReachedOverTLS has a server with a certificate of an authority of its own, and gateways that trust it, or do not.
func TestLongTheStoreIsReachedOverTLS(t *testing.T) {
	ca := tlstest.New(t, "ca")
	store := encryptedPostgres(t, ca)
	caFile, other := ca.WriteCA(), tlstest.New(t, "another").WriteCA()

	p := e2e.Launch(t, "--store="+store+"&sslmode=verify-full&sslrootcert="+caFile)
	p.Connect().Allocate(e2e.Account, "")
	sessions := e2e.Query(t, store+"&sslmode=require", `SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL`)
	if sessions != "(t)" {
		t.Errorf("all sessions are encrypted: %s", sessions)
	}
	p.Stop()

	free := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store-wait=1s"}
	if said := e2e.Refused(t, e2e.ExitUsage, append(free, "--store="+store+"&sslmode=verify-full&sslrootcert="+other)...); !strings.Contains(said, "certificate") {
		t.Errorf("a store of another authority: said %s", said)
	}
}

// encryptedPostgres takes connections over TLS only; the URL says nothing of it.
func encryptedPostgres(t *testing.T, ca *tlstest.Authority) (url string) {
	t.Helper()
	s, err := pgtest.Start()
	expect.Must(t, err)
	e2e.CloseLater(t, s)
	info, err := os.Stat(s.Dir())
	expect.Must(t, err)
	cert, key := ca.Issue(tlstest.Leaf{})
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		file := filepath.Join(s.Dir(), name)
		expect.Must(t, os.WriteFile(file, data, 0o600))
		// PostgreSQL reads only what is its own.
		if owner := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 {
			expect.Must(t, os.Chown(file, int(owner.Uid), int(owner.Gid)))
		}
	}
	e2e.Execute(t, s.URL("postgres"),
		fmt.Sprintf("ALTER SYSTEM SET ssl_cert_file = '%s/cert.pem'", s.Dir()), fmt.Sprintf("ALTER SYSTEM SET ssl_key_file = '%s/key.pem'", s.Dir()),
		"ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
	return strings.Replace(s.URL("postgres"), "sslmode=disable", "application_name=tls", 1)
}
