//go:build unix

package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"noncegate/client"
	"noncegate/internal/testenv/tlstest"
)

// adminKey is the key of the private side in these tests.
const adminKey = "the key of the private side"

func TestAStartBeyondLoopbackNeedsWhatProtectsIt(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	_, other := ca.Write(tlstest.Leaf{})
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "n.db")
	pair := []string{"--tls-cert=" + cert, "--tls-key=" + key}
	everywhere := []string{"--listen=0.0.0.0:0", "--admin-listen=127.0.0.1:0"}
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
		{[]string{"--node-ca=" + key}, "--node-ca cannot be used: " + key + ": has no CERTIFICATE in PEM"},
	} {
		if said := refused(t, exitUsage, append(c.args, store)...); !strings.HasPrefix(said, "gateway: "+c.want) {
			t.Errorf("%q: said %s", c.args, said)
		}
	}
}

func TestAGatewayBeyondLoopbackServesBothAddressesOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	caFile, adminKey := ca.WriteCA(), strings.ReplaceAll(adminKey, " ", "-")
	p := begin(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"), "--listen=0.0.0.0:0", "--admin-listen=0.0.0.0:0",
		"--tls-cert="+cert, "--tls-key="+key, "--insecure-listen=no-auth", "--admin-key="+adminKey)
	p.serves()
	here := func(url string) string { return strings.Replace(url, "[::]", "127.0.0.1", 1) }
	url, admin := here(p.url), here(p.admin)
	if !strings.HasPrefix(url, "wss://") || !strings.HasPrefix(admin, "https://") {
		t.Fatalf("it says %s and %s", url, admin)
	}

	call := []string{"call", "--url", url, "nonce_allocate", `{"signer":"s"}`}
	if o := runArgs(t, append(call, "--ca", caFile)...); o.code != exitOK || !strings.Contains(o.stdout, `"nonce":0`) {
		t.Errorf("with its authority: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := runArgs(t, append(call, "--timeout=2s")...); o.code != exitFailure || !strings.Contains(o.stderr, "certificate") {
		t.Errorf("without its authority: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := runArgs(t, append(call, "--ca=none.pem")...); o.code != exitUsage || o.stderr != "gateway: --ca cannot be used: none.pem: no such file or directory\n" {
		t.Errorf("with a file that is not there: exit %d, %s", o.code, o.stderr)
	}
	c, err := client.Dial(t.Context(), url, client.Config{TLS: ca.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: "s"}); err != nil || a.Nonce != 1 {
		t.Errorf("the Go client: %+v, %v", a, err)
	}
	c.Close()

	if o := runArgs(t, "engine", "status", "--admin", admin, "--ca", caFile, "--admin-key", adminKey); o.code != exitOK || !strings.Contains(o.stdout, "RELIABLE") {
		t.Errorf("engine status: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := runArgs(t, "engine", "status", "--admin", admin, "--ca", caFile); o.code != exitFailure || !strings.Contains(o.stderr, "the admin key is needed") {
		t.Errorf("engine status without the key: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(), DisableKeepAlives: true}}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/metrics": "the admin key is needed\n"} {
		res, err := web.Get(admin + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s: %q, %v", path, body, err)
		}
	}
	p.says("beyond loopback without authentication")
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// TestClientsComeInByKeyOrCertificateOverTLS is the way a gateway is meant to be open
// to others: with TLS and authentication, and without --insecure-listen.
func TestClientsComeInByKeyOrCertificateOverTLS(t *testing.T) {
	t.Parallel()
	ca, dir := tlstest.New(t, "ca"), t.TempDir()
	cert, key := ca.Write(tlstest.Leaf{})
	caFile, rights, store := ca.WriteCA(), filepath.Join(dir, "rights.yaml"), "--store=sqlite:"+filepath.Join(dir, "n.db")
	err := os.WriteFile(rights, []byte("principals:\n  wallet:\n    - {rights: [allocate, read], signers: [\"eip155:1:*\"]}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	made := runArgs(t, "key", "create", "wallet", store)
	if made.code != exitOK {
		t.Fatalf("key create: %s", made.stderr)
	}
	token := regexp.MustCompile(`nck_\S+`).FindString(made.stdout)
	p := begin(t, store, "--listen=0.0.0.0:0", "--tls-cert="+cert, "--tls-key="+key, "--tls-client-ca="+caFile, "--rights="+rights)
	p.serves()
	url := strings.Replace(p.url, "[::]", "127.0.0.1", 1)

	ask := func(signer string, more ...string) outcome {
		return runArgs(t, append([]string{"call", "--url", url, "--ca", caFile, "--timeout=5s", "nonce_allocate", `{"signer":"` + signer + `"}`}, more...)...)
	}
	if o := ask("eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "--token", token); o.code != exitOK || !strings.Contains(o.stdout, `"nonce":0`) {
		t.Errorf("with a key: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := ask("eip155:2:0x52908400098527886e0f7030069857d2e4169ee7", "--token", token); o.code != exitFailure || !strings.Contains(o.stderr, "forbidden") {
		t.Errorf("for a signer without rights: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := ask("eip155:1:0x52908400098527886e0f7030069857d2e4169ee7"); o.code != exitFailure || !strings.Contains(o.stderr, "401") {
		t.Errorf("without a key: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	mine, myKey := ca.Write(tlstest.Leaf{Name: "wallet", Client: true})
	if o := ask("eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "--cert", mine, "--cert-key", myKey); o.code != exitOK || !strings.Contains(o.stdout, `"nonce":1`) {
		t.Errorf("with a certificate: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	stranger, strangersKey := ca.Write(tlstest.Leaf{Name: "somebody", Client: true})
	if o := ask("eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "--cert", stranger, "--cert-key", strangersKey); o.code != exitFailure || strings.Contains(o.stdout, `"nonce"`) {
		t.Errorf("with a certificate of somebody without rights: exit %d, %s %s", o.code, o.stdout, o.stderr)
	}
	if o := ask("eip155:1:0x52908400098527886e0f7030069857d2e4169ee7", "--cert", mine); o.code != exitUsage || o.stderr != "gateway: --cert and --cert-key belong together\n" {
		t.Errorf("without its key: exit %d, %s", o.code, o.stderr)
	}
}

func TestLongACertificateIsRenewedWhileTheGatewayRuns(t *testing.T) {
	old, renewed := tlstest.New(t, "old"), tlstest.New(t, "renewed")
	cert, key := old.Write(tlstest.Leaf{})
	newCert, newKey := renewed.Issue(tlstest.Leaf{})
	p := begin(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"), "--tls-cert="+cert, "--tls-key="+key)
	p.serves()
	shakes := func(ca *tlstest.Authority) bool {
		conn, err := tls.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.url, "wss://"), "/ws"), ca.Client())
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}
	keep, err := client.Dial(t.Context(), p.url, client.Config{TLS: old.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	write := func(file string, data []byte) {
		t.Helper()
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cert, newCert)
	p.await("the metrics to say that the pair does not match", func() bool {
		return p.metric("noncegate_tls_files_stale 1") && p.metric("noncegate_tls_reload_failures_total 1")
	})
	if !shakes(old) {
		t.Error("the old pair is not in force any more")
	}
	p.says("private key does not match public key")
	write(key, newKey)
	p.await("the new pair", func() bool { return shakes(renewed) && p.metric("noncegate_tls_files_stale 0") })
	if shakes(old) {
		t.Error("the old pair is still in force")
	}
	if a, err := keep.Allocate(t.Context(), client.AllocateRequest{Signer: "s"}); err != nil || a.Nonce != 0 {
		t.Errorf("a connection from before: %+v, %v", a, err)
	}
}

func TestNodesReachEachOtherOverTLS(t *testing.T) {
	t.Parallel()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{Client: true})
	caFile := ca.WriteCA()
	f := serveEach(t, "a b", "--tls-cert="+cert, "--tls-key="+key, "--node-ca="+caFile, "--node-secret=0123456789abcdef",
		"--tls-client-ca="+caFile, "--tls-client-auth=require")
	reached := make(map[string]*client.Client)
	for name, p := range f.nodes {
		c, err := client.Dial(t.Context(), p.url, client.Config{TLS: ca.Client(tlstest.Leaf{Client: true})})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		reached[name] = c
		if _, err := client.Dial(t.Context(), p.url, client.Config{TLS: ca.Client(), MaxElapsed: 1}); err == nil {
			t.Error("a client without a certificate was let in")
		}
	}
	for _, s := range named("s", 20) {
		if first, err := reached["a"].Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || first.Nonce != 0 {
			t.Fatalf("%s by a: %+v, %v", s, first, err)
		}
		if second, err := reached["b"].Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || second.Nonce != 1 {
			t.Fatalf("%s by b: %+v, %v", s, second, err)
		}
	}
	if f.sum(`noncegate_forwarded_total{result="answered"}`) == 0 {
		t.Error("nothing was forwarded")
	}
	// A node that does not trust the others' authority reaches nobody.
	lost := f.begin("c", "--node-ca="+tlstest.New(t, "another").WriteCA())
	lost.serves()
	lost.await("it to say why", func() bool { return strings.Contains(lost.log.String(), "certificate signed by unknown authority") })
}
