//go:build unix

package clients

import (
	"encoding/base64"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/test/e2e"
)

// withUser puts a user into a URL.
func withUser(url, name, word string) string {
	return strings.Replace(url, "://", "://"+name+":"+word+"@", 1)
}

// basicOf is the header that clients make of a user in a URL. gorilla makes none: it
// refuses such URLs.
func basicOf(name, word string) http.Header {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(name, word)
	return r.Header
}

// A client that cannot set headers has its key in the URL, of which its library makes
// HTTP Basic. test/interop/ has foreign ones.
func TestAKeyInTheURLLetsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, file := "sqlite:"+filepath.Join(dir, "n.db"), filepath.Join(dir, "rights.yaml")
	write(t, file, accessRights)
	key := newKey(t, store, "ada")
	p := e2e.Launch(t, "--store="+store, "--rights="+file, "--audit=all")

	conn, response, err := websocket.DefaultDialer.Dial(p.URL, basicOf("any", key))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = response.Body.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"nonce_allocate","params":["mine:1"]}`)); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := conn.ReadMessage(); err != nil || !strings.Contains(string(answer), `"nonce":0`) {
		t.Errorf("got %s, %v", answer, err)
	}

	ours, err := client.Dial(t.Context(), withUser(p.URL, "", key), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if a, err := ours.Allocate(t.Context(), client.AllocateRequest{Signer: "mine:1"}); err != nil || a.Nonce != 1 {
		t.Errorf("got %+v, %v", a, err)
	}
	if _, err := ours.Allocate(t.Context(), client.AllocateRequest{Signer: "yours:1"}); err == nil || !strings.Contains(err.Error(), "the right allocate") {
		t.Errorf("got %v", err)
	}
	if o := e2e.Run(t, "signer", "show", "mine:1", "--url="+withUser(p.URL, "any", key)); o.Code != e2e.ExitOK || !strings.Contains(o.Stdout, "next") {
		t.Errorf("the command ended with %d: %s%s", o.Code, o.Stdout, o.Stderr)
	}

	t.Run("only a good one, and only one", func(t *testing.T) { wantBasicRefused(t, p.URL, key) })

	p.Stop()
	id := key[len("nck_"):][:16]
	if n := strings.Count(p.Printed(), `"msg":"login","component":"audit","principal":"ada","credential":"key:`+id+`"`); n != 3 {
		t.Errorf("the audit has %d logins of the key, want 3: %s", n, p.Printed())
	}
	if strings.Contains(p.Printed(), key[len(key)-20:]) || strings.Contains(p.Printed(), base64.StdEncoding.EncodeToString([]byte("any:" + key))[:40]) {
		t.Error("a secret is in the log")
	}
}

// wantBasicRefused asks with what is no key, and with two headers.
func wantBasicRefused(t *testing.T, url, key string) {
	for _, c := range []struct {
		name   string
		header http.Header
		says   string
	}{
		{"a wrong key by Basic", basicOf("ada", key[:len(key)-1]+"x"), "the credential is not valid"},
		{"a wrong key by Bearer", http.Header{"Authorization": {"Bearer " + key[:len(key)-1] + "x"}}, "the credential is not valid"},
		{"both", http.Header{"Authorization": {"Bearer " + key, basicOf("any", key).Get("Authorization")}},
			"more than one Authorization header was given; send one, with Bearer or Basic"},
	} {
		conn, response, err := websocket.DefaultDialer.Dial(url, c.header)
		if err == nil {
			conn.Close()
			t.Errorf("%s is let in", c.name)
			continue
		}
		if response == nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		body, _ := io.ReadAll(response.Body)
		offers := response.Header.Values("WWW-Authenticate")
		if response.StatusCode != http.StatusUnauthorized || string(body) != c.says+"\n" ||
			!slices.Equal(offers, []string{`Bearer realm="noncegate"`, `Basic realm="noncegate", charset="UTF-8"`}) {
			t.Errorf("%s: %s, %q, %q", c.name, response.Status, body, offers)
		}
	}
}
