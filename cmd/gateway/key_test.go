package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/internal/access/apikey"
	"noncegate/internal/admin"
	"noncegate/nonce/sqlite"
	"noncegate/test/lab/expect"
)

// listKeys runs key list and returns what it printed as JSON.
func listKeys(t *testing.T, store string) (views []admin.KeyView) {
	t.Helper()
	o := runArgs(t, "key", "list", "--json", "--store", store)
	if o.code != exitOK {
		t.Fatal(o)
	}
	if err := json.Unmarshal([]byte(o.stdout), &views); err != nil {
		t.Fatalf("%q: %v", o.stdout, err)
	}
	return views
}

// keysAreMadeListedAndRevoked runs the commands on an empty store.
func keysAreMadeListedAndRevoked(t *testing.T, store string) {
	made := runArgs(t, "key", "create", "alice", "--store", store)
	text := strings.TrimSuffix(made.stdout, "\n")
	id, _, err := apikey.Parse(text)
	if err != nil || made.code != exitOK || !strings.Contains(made.stderr, "API key "+id+" of alice, until it is revoked.") {
		t.Fatalf("%+v: %v", made, err)
	}
	second := runArgs(t, "key", "create", "alice", "--expires", "720h", "--json", "--store", store)
	var v admin.KeyView
	if err := json.Unmarshal([]byte(second.stdout), &v); err != nil || !strings.HasPrefix(v.Key, "nck_"+v.ID+"_") || v.ExpiresAt == nil || v.State != "live" {
		t.Fatalf("%+v: %v", second, err)
	}
	third := runArgs(t, "key", "create", "alice", "--store", store)
	if third.code != exitFailure || third.stdout != "" || third.stderr != "gateway: "+apikey.ErrTooManyLive.Error()+"\n" {
		t.Errorf("a third key: %+v", third)
	}
	if o := runArgs(t, "key", "revoke", id, "--store", store); o.code != exitOK || !strings.HasPrefix(o.stdout, "API key "+id+" of alice was revoked at 2") {
		t.Errorf("%+v", o)
	}
	if o := runArgs(t, "key", "revoke", "0123456789abcdef", "--store", store); o.code != exitFailure ||
		o.stderr != "gateway: there is no API key of this id: 0123456789abcdef\n" {
		t.Errorf("%+v", o)
	}
	views := listKeys(t, store)
	if len(views) != 2 || views[0].ID != id || views[0].State != "revoked" || views[0].RevokedAt == nil || views[1].ID != v.ID || views[1].State != "live" {
		t.Errorf("got %+v", views)
	}
	table := runArgs(t, "key", "list", "--store", store)
	if lines := strings.Split(table.stdout, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[0], "ID ") || !strings.Contains(lines[1], "revoked") ||
		strings.Contains(table.stdout, text) {
		t.Errorf("got\n%s", table.stdout)
	}
}

func TestKeysAreMadeListedAndRevokedOnPostgres(t *testing.T) {
	keysAreMadeListedAndRevoked(t, pg.NewDatabase(t))
}

func TestKeysOfAFileThatAGatewayHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
	expect.Must(t, err)
	keysAreMadeListedAndRevoked(t, "sqlite:"+path)
	list, err := s.Keys(t.Context(), 0)
	if err != nil || len(list.Keys) != 2 || list.Keys[0].Revoked.IsZero() {
		t.Errorf("the gateway sees %+v, %v", list, err)
	}
	expect.Check(t, s.Close())
}

func TestAKeyOfAPrincipalWithoutRightsIsWarnedOf(t *testing.T) {
	dir := t.TempDir()
	file, broken := filepath.Join(dir, "rights.yaml"), filepath.Join(dir, "broken.yaml")
	for path, text := range map[string]string{file: "principals:\n  alice:\n    - {rights: [read], signers: [\"*\"]}\n  idle: []\n", broken: "principals: 7\n"} {
		expect.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	settings := filepath.Join(dir, "gateway.yaml")
	expect.Must(t, os.WriteFile(settings, []byte("rights: "+file+"\n"), 0o600))
	store := "sqlite:" + filepath.Join(dir, "keys.db")
	for _, c := range []struct{ principal, flag, want string }{
		{"alice", "--rights=" + file, ""},
		{"idle", "--rights=" + file, "warning: idle has no rights in " + file + ": the key lets in, and nothing more\n"},
		{"alcie", "--config=" + settings, "warning: alcie is not among the principals of " + file + ": the key lets nobody in before it is\n"},
		{"alice", "--rights=" + broken, "warning: it is not known what alice may do: rights file " + broken + ": "},
	} {
		o := runArgs(t, "key", "create", c.principal, c.flag, "--store", store)
		if warned := strings.Contains(o.stderr, "warning: "); o.code != exitOK || !strings.HasPrefix(o.stdout, "nck_") || warned != (c.want != "") || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s %s: %+v, want %q", c.principal, c.flag, o, c.want)
		}
	}
}
