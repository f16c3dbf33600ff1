package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
	"noncegate/internal/access/jwt"
	"noncegate/nonce/sqlite"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rightsFile = `
principals:
  alice: [{rights: [allocate], signers: ["a*"]}]
  bob: []
quotas:
  alice: {connections: 3}
`

// world is a Gate with its store and its rights file.
type world struct {
	*access.Gate
	store *sqlite.Store
	file  string
}

func write(t testing.TB, path, text string) {
	t.Helper()
	expect.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

func newWorld(t testing.TB, change func(*access.Config)) *world {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "store.db"), 0, sqlite.Config{})
	expect.Must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	w := &world{store: store, file: filepath.Join(dir, "rights.yaml")}
	write(t, w.file, rightsFile)
	cfg := access.Config{Rights: w.file, RightsEvery: 5 * time.Millisecond, Keys: apikey.Config{Refresh: 5 * time.Millisecond}}
	if change != nil {
		change(&cfg)
	}
	if w.Gate, err = access.New(t.Context(), store, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func (w *world) key(t testing.TB, principal string, lifetime time.Duration) (text string, k apikey.Key) {
	t.Helper()
	text, r := apikey.Generate(principal, lifetime)
	k, err := w.store.CreateKey(t.Context(), r)
	expect.Must(t, err)
	wait.Until(t, "the key is known", func() bool {
		_, err := w.Authenticate(request("Bearer " + text))
		refused, _ := errors.AsType[*access.Refusal](err)
		return err == nil || refused.Reason != access.LoginUnknown
	})
	return text, k
}

// nextAddress makes the address of each request another one, so that the failures of
// one do not count against the next.
var nextAddress atomic.Uint32

func request(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/ws", nil)
	n := nextAddress.Add(1)
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
	for _, h := range header {
		r.Header.Add("Authorization", h)
	}
	return r
}

func wantRefused(t *testing.T, err error, reason access.LoginRefusal, kind error) {
	t.Helper()
	refused, ok := errors.AsType[*access.Refusal](err)
	if !ok || refused.Reason != reason || !errors.Is(err, kind) {
		t.Errorf("got %v, want a refusal %q that is %q", err, reason, kind)
	}
}

func TestASessionEndsWithItsPrincipal(t *testing.T) {
	w := newWorld(t, nil)
	text, _ := w.key(t, "alice", 0)
	s, err := w.Authenticate(request("Bearer " + text))
	expect.Must(t, err)
	write(t, w.file, "principals: {alice: [{rights: [read], signers: ['*']}]}")
	wait.Until(t, "the rights change", func() bool { return s.May(access.RightRead, "b") && !s.May(access.RightAllocate, "a") })
	write(t, w.file, "principals: {bob: []}")
	wait.Until(t, "the session ends", func() bool { return errors.Is(s.Ended(time.Now()), access.ErrRevoked) })
	if s.May(access.RightRead, "b") {
		t.Error("a principal that is gone has a right")
	}
	_, err = w.Authenticate(request("Bearer " + text))
	wantRefused(t, err, access.LoginPrincipal, access.ErrInvalid)
}

func TestAReloadDoesNotWaitForTheTimeOfTheNextReading(t *testing.T) {
	w := newWorld(t, nil)
	text, k := w.key(t, "alice", 0)
	keys := filepath.Join(t.TempDir(), "keys.json")
	mine, next := newKey(t), newKey(t)
	write(t, keys, keySetOf(t, mine))
	g, err := access.New(t.Context(), w.store, access.Config{
		Rights: w.file, RightsEvery: time.Hour, Keys: apikey.Config{Refresh: time.Hour, Trust: time.Hour},
		Tokens: &jwt.Config{Methods: []string{"ES256"}, Issuer: "i", Audience: "a", Keys: keys, Refresh: time.Hour},
	})
	expect.Must(t, err)
	defer g.Stop()
	s, err := g.Authenticate(request("Bearer " + text))
	expect.Must(t, err)
	write(t, w.file, "principals: {alice: [{rights: [read], signers: ['*']}]}")
	write(t, keys, keySetOf(t, next))
	if _, err := w.store.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	old := token(t, mine, "alice", time.Now().Add(time.Hour))
	if _, err := g.Authenticate(request("Bearer " + old)); err != nil {
		t.Errorf("before: %v", err)
	}
	g.Reload()
	wait.Until(t, "the rights change", func() bool { return s.May(access.RightRead, "b") })
	wait.Until(t, "the session ends", func() bool { return errors.Is(s.Ended(time.Now()), access.ErrRevoked) })
	wait.Until(t, "the old key of tokens is gone", func() bool {
		_, err := g.Authenticate(request("Bearer " + old))
		return errors.Is(err, access.ErrInvalid)
	})
}

func TestAnAddressThatIsWrongTooOftenIsNotLookedAt(t *testing.T) {
	w := newWorld(t, nil)
	text, _ := w.key(t, "alice", 0)
	from := func(addr, header string) error {
		r := request(header)
		r.RemoteAddr = addr
		_, err := w.Authenticate(r)
		return err
	}
	for range 100 { // what is right costs nothing
		expect.Must(t, from("[2001:db8::1]:1", "Bearer "+text))
	}
	for range 20 {
		wantRefused(t, from("[2001:db8::1]:1", "Bearer x"), access.LoginMalformed, access.ErrInvalid)
	}
	wantRefused(t, from("[2001:db8::ffff:1]:2", "Bearer x"), access.LoginThrottled, access.ErrThrottled) // of the same subscriber
	wantRefused(t, from("[2001:db8:0:1::1]:1", "Bearer x"), access.LoginMalformed, access.ErrInvalid)
}

// Behind a proxy all clients have one address: a stranger there must not be able to
// lock out those who have good keys.
func TestAGoodKeyIsLetInFromAnAddressOfWhichOthersAreWrong(t *testing.T) {
	w := newWorld(t, nil)
	text, k := w.key(t, "alice", 0)
	stranger, _ := w.key(t, "stranger", 0)
	revoked, old := w.key(t, "bob", 0)
	if _, err := w.store.RevokeKey(t.Context(), old.ID); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the key is revoked", func() bool {
		_, err := w.Authenticate(request("Bearer " + revoked))
		return errors.Is(err, access.ErrRevoked)
	})
	other, _ := apikey.Generate("alice", 0)
	from := func(header ...string) error {
		r := request(header...)
		r.RemoteAddr = "192.0.2.1:1"
		_, err := w.Authenticate(r)
		return err
	}
	for range 20 {
		_ = from("Bearer x")
	}
	expect.Check(t, from("Bearer "+text))
	expect.Check(t, from(basic("any", text)))
	for name, header := range map[string][]string{
		"an unknown key": {"Bearer " + other}, "another secret": {"Bearer " + apikey.Prefix + k.ID + other[len(apikey.Prefix)+len(k.ID):]},
		"of nobody": {"Bearer " + stranger}, "revoked": {"Bearer " + revoked}, "twice": {"Bearer " + text, "Bearer " + text}, "no key": {"Bearer x"}, "no key by Basic": {basic("any", "x")},
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, from(header...), access.LoginThrottled, access.ErrThrottled) })
	}
}

func TestAWrongRightsFileStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	write(t, bad, "principals: {a: [{rights: [write], signers: [x]}]}")
	for path, want := range map[string]string{
		bad:                          `rights file ` + bad + `: line 1: there is no right "write"`,
		filepath.Join(dir, "absent"): `rights file ` + filepath.Join(dir, "absent") + `: no such file or directory`,
		dir:                          `rights file ` + dir + `: is not a file`,
	} {
		_, err := access.New(context.Background(), nil, access.Config{Rights: path})
		if err == nil || len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWithoutAuthenticationEverybodyMayEverything(t *testing.T) {
	var s *access.Session
	if !s.May(access.RightAdmin, "x") || s.Ended(time.Now()) != nil || s.Quota() != (access.Quota{}) {
		t.Error("a nil session is limited")
	}
}
