//go:build unix

// Package clients tests what clients and operators meet at a gateway: who is let in, TLS, guards, limits, chains.
package clients

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func TestMain(m *testing.M) { e2e.Main(m) }

const accessRights = `
principals:
  ada:
    - {rights: [allocate, mark, read], signers: ["mine:*"]}
  bob:
    - {rights: [read], signers: ["*"]}
quotas:
  bob: {requestsPerSecond: 0.01, burst: 2, connections: 1}
`

func write(t testing.TB, path, text string) {
	t.Helper()
	// Replaced as a whole, so that nobody reads half of it.
	expect.Must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	expect.Must(t, os.Rename(path+".new", path))
}

// newKey makes an API key by the command.
func newKey(t testing.TB, store, principal string) string {
	t.Helper()
	o := e2e.Run(t, "key", "create", principal, "--store="+store)
	if o.Code != e2e.ExitOK {
		t.Fatalf("key create: %s", o.Stderr)
	}
	return strings.TrimSpace(o.Stdout)
}

func bearing(key string) client.Config {
	return client.Config{Header: http.Header{"Authorization": {"Bearer " + key}}, BackoffMin: 10 * time.Millisecond, MaxElapsed: 5 * time.Second}
}

func wantDialRefused(t testing.TB, err error, status int, reason string) {
	t.Helper()
	if e, ok := errors.AsType[*client.DialError](err); !ok || e.Status != status || e.Reason != reason {
		t.Errorf("got %v, want HTTP status %d: %s", err, status, reason)
	}
}

func TestAGatewayWithRightsLetsInWhomItKnows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, file := "sqlite:"+filepath.Join(dir, "n.db"), filepath.Join(dir, "rights.yaml")
	write(t, file, accessRights)
	keys := map[string]string{"ada": newKey(t, store, "ada"), "bob": newKey(t, store, "bob"), "eve": newKey(t, store, "eve")}
	p := e2e.Launch(t, "--store="+store, "--rights="+file, "--audit=changes")
	dial := func(cfg client.Config) (*client.Client, error) {
		c, err := client.Dial(t.Context(), p.URL, cfg)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return c, err
	}

	_, err := dial(client.Config{})
	wantDialRefused(t, err, http.StatusUnauthorized, "no credential was given")
	_, err = dial(bearing(keys["ada"] + "x"))
	wantDialRefused(t, err, http.StatusUnauthorized, "the credential is not valid")
	_, err = dial(bearing(keys["eve"])) // a key, and no rights
	wantDialRefused(t, err, http.StatusUnauthorized, "the credential is not valid")

	ada, err := dial(bearing(keys["ada"]))
	expect.Must(t, err)
	held, err := ada.Allocate(t.Context(), client.AllocateRequest{Signer: "mine:1"})
	if err != nil || held.Nonce != 0 {
		t.Fatalf("got %+v, %v", held, err)
	}
	if _, err := ada.Allocate(t.Context(), client.AllocateRequest{Signer: "yours:1"}); !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), "the right allocate") {
		t.Errorf("got %v", err)
	}

	bob, err := dial(bearing(keys["bob"]))
	expect.Must(t, err)
	_, err = dial(bearing(keys["bob"]))
	wantDialRefused(t, err, http.StatusTooManyRequests, "there are as many connections as may be from here, or of this principal")
	for range 2 {
		if s, err := bob.Status(t.Context(), "mine:1"); err != nil || s.Held != 1 {
			t.Fatalf("got %+v, %v", s, err)
		}
	}
	if _, err := bob.Status(t.Context(), "mine:1"); !errors.Is(err, client.ErrServerBusy) {
		t.Errorf("got %v, want a quota", err)
	}

	t.Run("a ticket is good once", func(t *testing.T) {
		ticket := ticketOf(t, p.URL, keys["ada"])
		c, err := client.Dial(t.Context(), p.URL+"?ticket="+ticket, client.Config{})
		expect.Must(t, err)
		defer c.Close()
		if _, err := c.Status(t.Context(), "mine:1"); err != nil {
			t.Error(err)
		}
		_, err = client.Dial(t.Context(), p.URL+"?ticket="+ticket, client.Config{})
		wantDialRefused(t, err, http.StatusUnauthorized, "the credential is not valid")
	})

	// A principal that is taken out of the rights is out, and the client does not come back: it says why.
	write(t, file, strings.ReplaceAll(accessRights, "ada:", "someone-else:"))
	p.Await("the connection to be closed", func() bool {
		_, err := ada.Status(t.Context(), "mine:1")
		e, ok := errors.AsType[*client.CloseError](err)
		if ok && (e.Code != 4502 || !strings.Contains(err.Error(), "the credential was revoked")) {
			t.Errorf("got %v", err)
		}
		return ok
	})
	p.Stop()
	for _, want := range []string{
		`"msg":"login_refused"`, `"msg":"login","component":"audit","principal":"ada"`, `"method":"nonce_allocate","signer":"mine:1","nonce":0,"outcome":"ok"`,
		`"method":"nonce_allocate","signer":"yours:1","outcome":"forbidden","right":"allocate"`, `"outcome":"revoked"`,
	} {
		if !strings.Contains(p.Printed(), want) {
			t.Errorf("no line of the log has %s", want)
		}
	}
	for _, key := range keys {
		if strings.Contains(p.Printed(), key[len(key)-20:]) {
			t.Error("a secret is in the log")
		}
	}
}

func ticketOf(t *testing.T, url, key string) string {
	t.Helper()
	url = strings.TrimSuffix(strings.Replace(url, "ws://", "http://", 1), "/ws") + "/ticket"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	expect.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	expect.Must(t, err)
	defer response.Body.Close()
	var answer struct{ Ticket string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Ticket == "" {
		t.Fatalf("HTTP %d, %v", response.StatusCode, err)
	}
	return answer.Ticket
}

func TestSIGHUPHasFilesReadAgainAndEndsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, file := "sqlite:"+filepath.Join(dir, "n.db"), filepath.Join(dir, "rights.yaml")
	write(t, file, accessRights)
	key := newKey(t, store, "ada")
	p := e2e.Launch(t, "--store="+store, "--rights="+file)
	ada, err := client.Dial(t.Context(), p.URL, bearing(key))
	expect.Must(t, err)
	defer ada.Close()
	if _, err := ada.Status(t.Context(), "yours:1"); !errors.Is(err, client.ErrForbidden) {
		t.Fatalf("got %v", err)
	}
	write(t, file, strings.ReplaceAll(accessRights, `"mine:*"`, `"yours:*"`))
	p.Signal(syscall.SIGHUP)
	p.Await("the rights to be in force", func() bool {
		_, err := ada.Status(t.Context(), "yours:1")
		return err == nil
	})
	p.Says("reading rights, keys and TLS files again")
	p.Stop()
}

// Whoever reaches the private side without its key must not be able to take the process's descriptors for nothing.
func TestLongASocketOfThePrivateSideThatSaysNothingMoreIsClosed(t *testing.T) {
	p := e2e.Launch(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"))
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.Admin, "http://"))
	expect.Must(t, err)
	defer conn.Close()
	// A body that does not come: what is not read of it is waited for with the answer.
	if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(wait.Patience))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
}

// With every descriptor taken by clients a gateway does not reach its store any more, which is worse than to turn clients away.
func TestTooFewDescriptorsAreWarnedOf(t *testing.T) {
	t.Parallel()
	const said = "fewer file descriptors than this gateway may need"
	for most, warned := range map[string]bool{"100": false, "2000000000": true} {
		p := e2e.Launch(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"), "--max-connections="+most)
		p.Signal(syscall.SIGTERM)
		if p.Exit(); strings.Contains(p.Printed(), said) != warned {
			t.Errorf("with %s connections: %s", most, p.Printed())
		}
	}
}
