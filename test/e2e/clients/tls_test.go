//go:build unix

package clients

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/tlstest"
)

// adminKey is the key of the private side in these tests.
const adminKey = "the key of the private side"

func TestAStartBeyondLoopbackNeedsWhatProtectsIt(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	_, other := ca.Write(tlstest.Leaf{})
	dir := t.TempDir()
	store, rights := "--store=sqlite:"+filepath.Join(dir, "n.db"), filepath.Join(dir, "rights.yaml")
	write(t, rights, accessRights)
	pair := []string{"--tls-cert=" + cert, "--tls-key=" + key}
	everywhere := []string{"--listen=0.0.0.0:0", "--admin-listen=127.0.0.1:0"}
	free := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}
	private := []string{"--listen=127.0.0.1:0", "--admin-listen=0.0.0.0:0"}
	const needs, without = "--listen 0.0.0.0:0 is beyond loopback and needs ", "to do without"
	for _, c := range []struct {
		args []string
		want string
	}{
		{everywhere, needs + "TLS (--tls-cert and --tls-key) and authentication (--rights), or --insecure-listen=no-tls,no-auth " + without},
		{append([]string{"--insecure-listen=no-tls"}, everywhere...), needs + "authentication (--rights), or --insecure-listen=no-auth " + without},
		{append([]string{"--insecure-listen=no-auth"}, everywhere...), needs + "TLS (--tls-cert and --tls-key), or --insecure-listen=no-tls " + without},
		{append(pair, everywhere...), needs + "authentication (--rights), or --insecure-listen=no-auth " + without},
		{private, "--admin-listen 0.0.0.0:0 is beyond loopback and needs --admin-key"},
		{append(pair, private...), "--admin-listen 0.0.0.0:0 is beyond loopback and needs --admin-key"},
		{append([]string{"--insecure-listen=no-tls,no-auth"}, private...), "--admin-listen 0.0.0.0:0 is beyond loopback and needs --admin-key"},
		{append([]string{"--admin-key=" + adminKey[:16]}, private...), "--admin-key must be"}, // blanks
		{append([]string{"--admin-key=" + strings.ReplaceAll(adminKey, " ", "-")}, private...),
			"--admin-listen 0.0.0.0:0 is beyond loopback and needs TLS (--tls-cert and --tls-key), or --insecure-listen=no-tls to do without"},
		{[]string{"--tls-cert=" + cert, "--tls-key=" + other}, "--tls-cert cannot be used: " + cert + " and " + other + ": private key does not match public key"},
		{[]string{"--tls-cert=nowhere.pem", "--tls-key=" + other}, "--tls-cert cannot be used: nowhere.pem: no such file or directory"},
		{append(pair, "--tls-client-ca="+key, "--tls-client-auth=require"), "--tls-cert cannot be used: " + key + ": has no CERTIFICATE in PEM"},
		{append([]string{"--rights=nowhere.yaml"}, free...), "--rights cannot be used: rights file"},
		{[]string{"--rights=" + rights, "--jwt-keys=http://id.example/keys", "--jwt-issuer=i", "--jwt-audience=a", free[0], free[1]}, "--jwt-keys cannot be used: token keys "},
		{[]string{"--node-ca=" + key}, "--node-ca cannot be used: " + key + ": has no CERTIFICATE in PEM"},
	} {
		if said := e2e.Refused(t, e2e.ExitUsage, append(c.args, store)...); !strings.HasPrefix(said, "gateway: "+c.want) {
			t.Errorf("%q: said %s", c.args, said)
		}
	}
}

func TestAGatewayBeyondLoopbackServesBothAddressesOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	caFile, adminKey := ca.WriteCA(), strings.ReplaceAll(adminKey, " ", "-")
	p := e2e.Begin(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"), "--listen=0.0.0.0:0", "--admin-listen=0.0.0.0:0",
		"--tls-cert="+cert, "--tls-key="+key, "--insecure-listen=no-auth", "--admin-key="+adminKey)
	p.Serves()
	here := func(url string) string { return strings.Replace(url, "[::]", "127.0.0.1", 1) }
	url, admin := here(p.URL), here(p.Admin)
	if !strings.HasPrefix(url, "wss://") || !strings.HasPrefix(admin, "https://") {
		t.Fatalf("it says %s and %s", url, admin)
	}

	call := []string{"call", "--url", url, "nonce_allocate", `{"signer":"s"}`}
	if o := e2e.Run(t, append(call, "--ca", caFile)...); o.Code != e2e.ExitOK || !strings.Contains(o.Stdout, `"nonce":0`) {
		t.Errorf("with its authority: exit %d, %s %s", o.Code, o.Stdout, o.Stderr)
	}
	if o := e2e.Run(t, append(call, "--timeout=2s")...); o.Code != e2e.ExitFailure || !strings.Contains(o.Stderr, "certificate") {
		t.Errorf("without its authority: exit %d, %s %s", o.Code, o.Stdout, o.Stderr)
	}
	if o := e2e.Run(t, append(call, "--ca=none.pem")...); o.Code != e2e.ExitUsage || o.Stderr != "gateway: --ca cannot be used: none.pem: no such file or directory\n" {
		t.Errorf("with a file that is not there: exit %d, %s", o.Code, o.Stderr)
	}
	c, err := client.Dial(t.Context(), url, client.Config{TLS: ca.Client()})
	expect.Must(t, err)
	if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: "s"}); err != nil || a.Nonce != 1 {
		t.Errorf("the Go client: %+v, %v", a, err)
	}
	c.Close()

	if o := e2e.Run(t, "engine", "status", "--admin", admin, "--ca", caFile, "--admin-key", adminKey); o.Code != e2e.ExitOK || !strings.Contains(o.Stdout, "RELIABLE") {
		t.Errorf("engine status: exit %d, %s %s", o.Code, o.Stdout, o.Stderr)
	}
	if o := e2e.Run(t, "engine", "status", "--admin", admin, "--ca", caFile); o.Code != e2e.ExitFailure || !strings.Contains(o.Stderr, "the admin key is needed") {
		t.Errorf("engine status without the key: exit %d, %s %s", o.Code, o.Stdout, o.Stderr)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(), DisableKeepAlives: true}}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": "the admin key is needed\n"} {
		res, err := web.Get(admin + path)
		expect.Must(t, err)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	p.Says("beyond loopback without authentication")
	p.Stop()
}

// TestClientsComeInByKeyOrCertificateOverTLS is the way a gateway is meant to be open
// to others: with TLS and authentication, and without --insecure-listen.
func TestClientsComeInByKeyOrCertificateOverTLS(t *testing.T) {
	t.Parallel()
	ca, dir := tlstest.New(t, "ca"), t.TempDir()
	cert, key := ca.Write(tlstest.Leaf{})
	caFile, rights, store := ca.WriteCA(), filepath.Join(dir, "rights.yaml"), "--store=sqlite:"+filepath.Join(dir, "n.db")
	err := os.WriteFile(rights, []byte("principals:\n  wallet:\n    - {rights: [allocate, read], signers: [\"eip155:1:*\"]}\n"), 0o600)
	expect.Must(t, err)
	made := e2e.Run(t, "key", "create", "wallet", store)
	if made.Code != e2e.ExitOK {
		t.Fatalf("key create: %s", made.Stderr)
	}
	token := regexp.MustCompile(`nck_\S+`).FindString(made.Stdout)
	p := e2e.Begin(t, store, "--listen=0.0.0.0:0", "--tls-cert="+cert, "--tls-key="+key, "--tls-client-ca="+caFile, "--rights="+rights)
	p.Serves()
	url := strings.Replace(p.URL, "[::]", "127.0.0.1", 1)

	const account, other = "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "eip155:2:0x52908400098527886e0f7030069857d2e4169ee7"
	mine, myKey := ca.Write(tlstest.Leaf{Name: "wallet", Client: true})
	stranger, strangersKey := ca.Write(tlstest.Leaf{Name: "somebody", Client: true})
	for _, tt := range []struct {
		who, signer string
		show        []string
		code        int
		says        string // on either output
	}{
		{"with a key", account, []string{"--token", token}, e2e.ExitOK, `"nonce":0`},
		{"for a signer without rights", other, []string{"--token", token}, e2e.ExitFailure, "forbidden"},
		{"without a key", account, nil, e2e.ExitFailure, "401"},
		{"with a certificate", account, []string{"--cert", mine, "--cert-key", myKey}, e2e.ExitOK, `"nonce":1`},
		{"with a certificate of somebody without rights", account, []string{"--cert", stranger, "--cert-key", strangersKey}, e2e.ExitFailure, ""},
		{"without its key", account, []string{"--cert", mine}, e2e.ExitUsage, "gateway: --cert needs --cert-key beside it\n"},
	} {
		o := e2e.Run(t, append([]string{"call", "--url", url, "--ca", caFile, "--timeout=45s", "nonce_allocate", `{"signer":"` + tt.signer + `"}`}, tt.show...)...)
		if said := o.Stdout + o.Stderr; o.Code != tt.code || !strings.Contains(said, tt.says) || o.Code != e2e.ExitOK && strings.Contains(said, `"nonce"`) {
			t.Errorf("%s: exit %d, %s", tt.who, o.Code, said)
		}
	}
}

func TestNodesReachEachOtherOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{Client: true})
	caFile := ca.WriteCA()
	f := e2e.ServeEach(t, "a b", "--lease-ttl=10s", "--tls-cert="+cert, "--tls-key="+key, "--node-ca="+caFile,
		"--node-secret=0123456789abcdef", "--tls-client-ca="+caFile, "--tls-client-auth=require")
	reached := make(map[string]*client.Client)
	for name, p := range f.Nodes {
		c, err := client.Dial(t.Context(), p.URL, client.Config{TLS: ca.Client(tlstest.Leaf{Client: true})})
		expect.Must(t, err)
		defer c.Close()
		reached[name] = c
		if _, err := client.Dial(t.Context(), p.URL, client.Config{TLS: ca.Client(), MaxElapsed: 1}); err == nil {
			t.Error("a client without a certificate was let in")
		}
	}
	for _, s := range e2e.Signers("s", 20) {
		if first, err := reached["a"].Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || first.Nonce != 0 {
			t.Fatalf("%s by a: %+v, %v", s, first, err)
		}
		if second, err := reached["b"].Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || second.Nonce != 1 {
			t.Fatalf("%s by b: %+v, %v", s, second, err)
		}
	}
	if f.Sum(`noncegate_forwarded_total{result="answered"}`) == 0 {
		t.Error("nothing was forwarded")
	}
	// A node that does not trust the others' authority reaches nobody.
	lost := f.Begin("c", "--node-ca="+tlstest.New(t, "another").WriteCA())
	lost.Serves()
	lost.Await("it to say why", func() bool { return strings.Contains(lost.Printed(), "certificate signed by unknown authority") })
}
