package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/tlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func put(t *testing.T, file string, data []byte) {
	t.Helper()
	expect.Must(t, os.WriteFile(file, data, 0o600))
}

// greet makes one handshake between the two sides.
func greet(t *testing.T, server, client *tls.Config) (seen tls.ConnectionState, err error) {
	t.Helper()
	const patience = 45 * time.Second
	here, there := net.Pipe()
	_ = here.SetDeadline(time.Now().Add(patience))
	_ = there.SetDeadline(time.Now().Add(patience))
	ended := make(chan error, 1)
	go func() {
		defer there.Close()
		client = client.Clone()
		client.ServerName = "localhost"
		// With TLS 1.3 a refusal comes behind the client's last word.
		_, err := tls.Client(there, client).Read(make([]byte, 1))
		ended <- err
	}()
	s := tls.Server(here, server)
	_, err = s.Write([]byte("x"))
	seen = s.ConnectionState()
	_ = here.Close()
	return seen, errors.Join(err, <-ended)
}

func TestWhatCannotBeUsedIsAnErrorThatNamesTheFile(t *testing.T) {
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	_, other := ca.Write(tlstest.Leaf{})
	dir := t.TempDir()
	file := func(name, text string) string {
		put(t, filepath.Join(dir, name), []byte(text))
		return filepath.Join(dir, name)
	}
	empty := file("empty.pem", "")
	broken := file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	large := file("large.pem", strings.Repeat("x", maxFile+1))
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Cert: filepath.Join(dir, "none"), Key: key}, filepath.Join(dir, "none") + ": no such file or directory"},
		{Config{Cert: dir, Key: key}, dir + ": is not a file"},
		{Config{Cert: large, Key: key}, large + ": is larger than 1048576 bytes"},
		{Config{Cert: empty, Key: key}, empty + ": has no CERTIFICATE in PEM"},
		{Config{Cert: key, Key: key}, key + ": has no CERTIFICATE in PEM"},
		{Config{Cert: cert, Key: cert}, cert + ": has no PRIVATE KEY in PEM"},
		{Config{Cert: cert, Key: other}, cert + " and " + other + ": private key does not match public key"},
		{Config{Cert: broken, Key: key}, broken + " and " + key + ": "},
		{Config{Cert: cert, Key: key, ClientCA: empty}, empty + ": has no CERTIFICATE in PEM"},
		{Config{Cert: cert, Key: key, ClientCA: broken}, broken + ": malformed certificate"},
	} {
		if _, err := Open(c.cfg, quiet); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.cfg, err, c.want)
		}
	}
}

func TestARenewedPairIsTakenAndOneThatDoesNotMatchIsNot(t *testing.T) {
	old, renewed := tlstest.New(t, "old"), tlstest.New(t, "renewed")
	cert, key := old.Write(tlstest.Leaf{})
	newCert, newKey := renewed.Issue(tlstest.Leaf{NotAfter: time.Now().Add(48 * time.Hour)})
	issued := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := Open(Config{Cert: cert, Key: key}, slog.New(slog.NewTextHandler(&log, nil)))
		expect.Must(t, err)
		defer s.Stop()
		served := s.TLS()
		trusts := func(ca *tlstest.Authority, want bool) {
			t.Helper()
			client := ca.Client()
			client.Time = func() time.Time { return issued }
			if _, err := greet(t, served, client); (err == nil) != want {
				t.Errorf("a client that trusts this authority alone: %v", err)
			}
		}
		is := func(reloads, failures int64, stale bool) {
			t.Helper()
			for range 3 {
				time.Sleep(defaultEvery)
				synctest.Wait()
			}
			if s.Reloads() != reloads || s.Failures() != failures || s.Stale() != stale {
				t.Errorf("%d reloads, %d failures, stale %v; want %d, %d, %v", s.Reloads(), s.Failures(), s.Stale(), reloads, failures, stale)
			}
		}
		is(0, 0, false)
		trusts(old, true)
		put(t, cert, newCert) // its key is still the old one
		is(0, 1, true)
		trusts(old, true)
		if strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), "private key does not match public key") {
			t.Errorf("the log: %s", log.String())
		}
		put(t, key, newKey)
		is(1, 1, false)
		trusts(renewed, true)
		trusts(old, false)
		expect.Must(t, os.Remove(key))
		is(1, 2, true)
		trusts(renewed, true)
		put(t, key, newKey)
		is(1, 2, false)
	})
}

func TestTheFilesOfAMountedSecretAreReadAgainWhenItsLinkIsMoved(t *testing.T) {
	first, second := tlstest.New(t, "first"), tlstest.New(t, "second")
	dir := t.TempDir()
	for name, ca := range map[string]*tlstest.Authority{"v1": first, "v2": second} {
		expect.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		put(t, filepath.Join(dir, name, "ca.pem"), ca.PEM)
	}
	link := func(to string) {
		t.Helper()
		expect.Must(t, errors.Join(os.Symlink(to, filepath.Join(dir, "new")), os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data"))))
	}
	link("v1")
	synctest.Test(t, func(t *testing.T) {
		a, err := OpenAuthorities(filepath.Join(dir, "data", "ca.pem"), time.Second, quiet)
		expect.Must(t, err)
		defer a.Stop()
		before := a.Pool()
		link("v2")
		time.Sleep(time.Second)
		synctest.Wait()
		if a.Pool().Equal(before) || a.Reloads() != 1 {
			t.Errorf("%d reloads", a.Reloads())
		}
		link("v1")
		a.Soon() // is at once
		synctest.Wait()
		if !a.Pool().Equal(before) || a.Reloads() != 2 {
			t.Errorf("%d reloads", a.Reloads())
		}
	})
}

func TestClientsShowACertificateOfTheAuthorityWhereOneIsRequired(t *testing.T) {
	ca, foreign := tlstest.New(t, "ca"), tlstest.New(t, "foreign")
	cert, key := ca.Write(tlstest.Leaf{Client: true})
	leaf := tlstest.Leaf{Name: "wallet", Hosts: []string{}, Client: true}
	strange := ca.Client()
	strange.Certificates = foreign.Client(leaf).Certificates
	strange.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // also unasked
		return &strange.Certificates[0], nil
	}
	outOfDate := ca.Client(tlstest.Leaf{Name: "wallet", Client: true, NotAfter: time.Now().Add(-time.Hour)})
	for _, c := range []struct {
		name              string
		client            *tls.Config
		require           bool
		let               bool
		verifiedPrincipal string
	}{
		{"one of the authority, required", ca.Client(leaf), true, true, "wallet"},
		{"none, required", ca.Client(), true, false, ""},
		{"one of another authority, required", strange, true, false, ""},
		{"an expired one, required", outOfDate, true, false, ""},
		{"one of the authority, not required", ca.Client(leaf), false, true, "wallet"},
		{"none, not required", ca.Client(), false, true, ""},
		{"one of another authority, not required", strange, false, false, ""},
		{"for servers only", ca.Client(tlstest.Leaf{Name: "wallet"}), true, false, ""},
	} {
		s, err := Open(Config{Cert: cert, Key: key, ClientCA: ca.WriteCA(), RequireClient: c.require}, quiet)
		expect.Must(t, err)
		seen, err := greet(t, s.TLS(), c.client)
		if asked, err := greet(t, s.Plain(), ca.Client(leaf)); err != nil || len(asked.PeerCertificates) > 0 {
			t.Errorf("%s: where nobody is asked: %d certificates, %v", c.name, len(asked.PeerCertificates), err)
		}
		s.Stop()
		if (err == nil) != c.let {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		principal := ""
		if c.let && len(seen.VerifiedChains) > 0 {
			principal = seen.VerifiedChains[0][0].Subject.CommonName
		}
		if principal != c.verifiedPrincipal {
			t.Errorf("%s: verified %q, want %q", c.name, principal, c.verifiedPrincipal)
		}
	}
}

func TestOldVersionsAndHTTP2AreNotSpoken(t *testing.T) {
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	s, err := Open(Config{Cert: cert, Key: key}, quiet)
	expect.Must(t, err)
	defer s.Stop()
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client := ca.Client()
		client.MinVersion, client.MaxVersion = version, version
		if _, err := greet(t, s.TLS(), client); (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	client := ca.Client()
	client.NextProtos = []string{"h2", "http/1.1"}
	if seen, err := greet(t, s.TLS(), client); err != nil || seen.NegotiatedProtocol != "http/1.1" {
		t.Errorf("agreed on %q: %v", seen.NegotiatedProtocol, err)
	}
	client.NextProtos = []string{"h2"}
	if _, err := greet(t, s.TLS(), client); err == nil {
		t.Error("a client that speaks HTTP/2 alone was let in")
	}
}

func TestANodeShowsItsCertificateOnlyWhereItIsTakenAsAClients(t *testing.T) {
	ca, foreign := tlstest.New(t, "ca"), tlstest.New(t, "foreign")
	for _, c := range []struct {
		name  string
		leaf  tlstest.Leaf
		of    *tlstest.Authority
		shown bool
	}{
		{"for clients too", tlstest.Leaf{Client: true}, ca, true},
		{"for servers only", tlstest.Leaf{}, ca, false},
		{"of an authority that is not asked for", tlstest.Leaf{Client: true}, foreign, false},
	} {
		cert, key := ca.Write(tlstest.Leaf{})
		other, err := Open(Config{Cert: cert, Key: key, ClientCA: ca.WriteCA()}, quiet)
		expect.Must(t, err)
		mine, myKey := c.of.Write(c.leaf)
		self, err := Open(Config{Cert: mine, Key: myKey}, quiet)
		expect.Must(t, err)
		dialler := ca.Client()
		dialler.GetClientCertificate = self.ClientCertificate
		seen, err := greet(t, other.TLS(), dialler)
		if err != nil || (len(seen.VerifiedChains) > 0) != c.shown {
			t.Errorf("%s: shown %v, %v", c.name, len(seen.VerifiedChains) > 0, err)
		}
		other.Stop()
		self.Stop()
	}
}

func TestAClientThatRunsOnceReadsItsFiles(t *testing.T) {
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{Client: true})
	s, err := Open(Config{Cert: cert, Key: key, ClientCA: ca.WriteCA(), RequireClient: true}, quiet)
	expect.Must(t, err)
	defer s.Stop()
	c, err := Client(ca.WriteCA(), cert, key)
	expect.Must(t, err)
	if _, err := greet(t, s.TLS(), c); err != nil {
		t.Error(err)
	}
	if c, err := Client("", "", ""); err != nil || c.RootCAs != nil {
		t.Errorf("without files: %+v, %v", c, err)
	}
	for _, files := range [][3]string{{"none", "", ""}, {"", "none", key}, {"", cert, "none"}, {key, "", ""}} {
		if _, err := Client(files[0], files[1], files[2]); err == nil {
			t.Errorf("%q: no error", files)
		}
	}
}

// FuzzPEM looks at what the files may hold: there is an error, or what came of it
// can be used.
func FuzzPEM(f *testing.F) {
	ca := tlstest.New(f, "ca")
	cert, key := ca.Issue(tlstest.Leaf{})
	f.Add(cert, key, ca.PEM)
	f.Add(cert, cert, key)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"), []byte("-----BEGIN X PRIVATE KEY-----\nAA==\n-----END X PRIVATE KEY-----"), []byte{})
	cfg := Config{Cert: "c", Key: "k", ClientCA: "a"}
	f.Fuzz(func(t *testing.T, cert, key, ca []byte) {
		m, err := cfg.parse([][]byte{cert, key, ca})
		switch {
		case err == nil && (m.pair.Leaf == nil || m.config.ClientCAs.Equal(x509.NewCertPool())):
			t.Error(fmt.Sprint("a pair without leaf, or no authority: ", m.pair.Leaf))
		case err != nil && m != nil:
			t.Error("an error and something to use")
		}
	})
}
