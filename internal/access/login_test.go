package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	gojwt "github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"noncegate/internal/access"
	"noncegate/internal/access/jwt"
	"noncegate/test/lab/expect"
)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.Must(t, err)
	return key
}

// keySetOf is the JSON Web Key Set of a key.
func keySetOf(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1"}}})
	expect.Must(t, err)
	return string(text)
}

// withTokens makes a Gate accept tokens that are signed by a key.
func withTokens(t testing.TB, key *ecdsa.PrivateKey) func(*access.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	write(t, path, keySetOf(t, key))
	return func(c *access.Config) {
		c.Tokens = &jwt.Config{Methods: []string{"ES256"}, Issuer: "i", Audience: "a", Keys: path, Leeway: time.Minute}
	}
}

func token(t testing.TB, key *ecdsa.PrivateKey, subject string, expires time.Time) string {
	t.Helper()
	text, err := gojwt.NewWithClaims(gojwt.SigningMethodES256, gojwt.MapClaims{
		"iss": "i", "aud": "a", "sub": subject, "jti": "t1", "exp": expires.Unix(),
	}).SignedString(key)
	expect.Must(t, err)
	return text
}

func TestATokenLetsItsPrincipalIn(t *testing.T) {
	key := newKey(t)
	w := newWorld(t, withTokens(t, key))
	exp := time.Now().Add(time.Hour).Truncate(time.Second)
	text := token(t, key, "alice", exp)
	_, body := w.post(t, http.MethodPost, "Bearer "+text, "")
	for name, r := range map[string]*http.Request{"header": request("Bearer " + text), "ticket": withTicket(body["ticket"])} {
		s, err := w.Authenticate(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.Principal != "alice" || s.Credential != "token:t1" || !s.Expires.Equal(exp.Add(time.Minute)) || !s.May(access.RightAllocate, "a") {
			t.Errorf("%s: got %+v", name, s)
		}
		if s.Ended(s.Expires.Add(-1)) != nil || !errors.Is(s.Ended(s.Expires), access.ErrExpired) {
			t.Errorf("%s: the session does not end with its token", name)
		}
	}
	_, err := w.Authenticate(request("Bearer " + token(t, key, "stranger", exp)))
	wantRefused(t, err, access.LoginPrincipal, access.ErrInvalid)
	_, err = w.Authenticate(request("Bearer " + token(t, key, "alice", exp.Add(-2*time.Hour))))
	wantRefused(t, err, access.LoginExpired, access.ErrExpired)
	_, err = w.Authenticate(request("Bearer " + token(t, newKey(t), "alice", exp)))
	wantRefused(t, err, access.LoginSignature, access.ErrInvalid)
}

func TestATokenIsNothingWhereTokensAreNotAccepted(t *testing.T) {
	w := newWorld(t, nil)
	_, err := w.Authenticate(request("Bearer " + token(t, newKey(t), "alice", time.Now().Add(time.Hour))))
	wantRefused(t, err, access.LoginMalformed, access.ErrInvalid)
}

// certificates is an authority for certificates of servers and clients.
type certificates struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{key: newKey(t), pool: x509.NewCertPool()}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c.cert = root
	issued := c.issue(t, root)
	c.cert = issued.Leaf
	c.pool.AddCert(c.cert)
	return c
}

func (c *certificates) issue(t *testing.T, want *x509.Certificate) tls.Certificate {
	t.Helper()
	key := c.key
	if !want.IsCA {
		key = newKey(t)
	}
	der, err := x509.CreateCertificate(rand.Reader, want, c.cert, key.Public(), c.key)
	expect.Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	expect.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestAClientCertificateLetsItsPrincipalIn(t *testing.T) {
	authority := newCertificates(t)
	w := newWorld(t, func(c *access.Config) { c.Certificates = true })
	type outcome struct {
		s   *access.Session
		err error
	}
	got := make(chan outcome, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s, err := w.Authenticate(r)
		got <- outcome{s, err}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.pool}
	server.StartTLS()
	t.Cleanup(server.Close)
	ask := func(mine ...tls.Certificate) outcome {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, Certificates: mine},
			DisableKeepAlives: true,
		}}
		answer, err := client.Get(server.URL)
		expect.Must(t, err)
		_ = answer.Body.Close()
		return <-got
	}
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		expect.Must(t, err)
		return u
	}
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	client := func(name string, uris ...*url.URL) tls.Certificate {
		return authority.issue(t, &x509.Certificate{SerialNumber: big.NewInt(0xbeef), Subject: pkix.Name{CommonName: name}, URIs: uris,
			NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	write(t, w.file, "principals: {alice: [], 'spiffe://example/relayer': []}")
	eventually(t, "the rights change", func() bool {
		return ask(client("x", uri("spiffe://example/relayer"))).err == nil
	})
	for _, c := range []struct {
		principal string
		cert      tls.Certificate
	}{
		{"alice", client("alice")},
		{"spiffe://example/relayer", client("alice", uri("spiffe://example/relayer"))},
	} {
		o := ask(c.cert)
		if o.err != nil || o.s.Principal != c.principal || o.s.Credential != "certificate:beef" || !o.s.Expires.Equal(end) ||
			!errors.Is(o.s.Ended(end), access.ErrExpired) || o.s.Ended(end.Add(-1)) != nil {
			t.Errorf("%s: got %+v, %v", c.principal, o.s, o.err)
		}
	}
	wantRefused(t, ask(client("bob")).err, access.LoginPrincipal, access.ErrInvalid)
	wantRefused(t, ask(client("with a space")).err, access.LoginCertificateName, access.ErrInvalid)
	wantRefused(t, ask(client("")).err, access.LoginCertificateName, access.ErrInvalid)
	wantRefused(t, ask(client("alice", uri("a:b"), uri("c:d"))).err, access.LoginCertificateName, access.ErrInvalid)
	wantRefused(t, ask(client("alice", uri("urn:"+strings.Repeat("x", 200)))).err, access.LoginCertificateName, access.ErrInvalid)
	wantRefused(t, ask().err, access.LoginMissing, access.ErrMissing)
}

func TestACertificateCountsOnlyWhereItWasVerifiedAndAccepted(t *testing.T) {
	authority := newCertificates(t)
	leaf := authority.issue(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(time.Hour)}).Leaf
	over := authority.issue(t, &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(-time.Hour)}).Leaf
	accepts, ignores := newWorld(t, func(c *access.Config) { c.Certificates = true }), newWorld(t, nil)
	r := request()
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	_, err := accepts.Authenticate(r)
	wantRefused(t, err, access.LoginMissing, access.ErrMissing)
	r.TLS.VerifiedChains = [][]*x509.Certificate{{leaf, authority.cert}}
	if _, err = accepts.Authenticate(r); err != nil {
		t.Error(err)
	}
	_, err = ignores.Authenticate(r)
	wantRefused(t, err, access.LoginMissing, access.ErrMissing)
	r.TLS.VerifiedChains = [][]*x509.Certificate{{over, authority.cert}}
	_, err = accepts.Authenticate(r)
	wantRefused(t, err, access.LoginExpired, access.ErrExpired)
}

func TestTheNameOfACertificateIsBehindItsPrefix(t *testing.T) {
	authority := newCertificates(t)
	w := newWorld(t, func(c *access.Config) { c.Certificates, c.CertificatePrefix = true, "cert:" })
	write(t, w.file, "principals: {alice: [], 'cert:alice': []}")
	as := func(name string) (*access.Session, error) {
		r := request()
		leaf := authority.issue(t, &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}).Leaf
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, authority.cert}}}
		return w.Authenticate(r)
	}
	eventually(t, "the rights change", func() bool { _, err := as("alice"); return err == nil })
	if s, err := as("alice"); err != nil || s.Principal != "cert:alice" { // and not the alice of an API key
		t.Errorf("got %+v, %v", s, err)
	}
	_, err := as("")
	wantRefused(t, err, access.LoginCertificateName, access.ErrInvalid)
}

func TestAWrongHeaderIsNotMadeGoodByACertificate(t *testing.T) {
	authority := newCertificates(t)
	leaf := authority.issue(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "alice"}, NotAfter: time.Now().Add(time.Hour)}).Leaf
	w := newWorld(t, func(c *access.Config) { c.Certificates = true })
	r := request("Bearer wrong")
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf, authority.cert}}}
	_, err := w.Authenticate(r)
	wantRefused(t, err, access.LoginMalformed, access.ErrInvalid)
}

func TestWhoIsLetInAndWhoIsNotIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, func(c *access.Config) { c.Metrics = reg })
	value := func(name, label string) float64 {
		t.Helper()
		families, err := reg.Gather()
		expect.Must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
					continue
				}
				if m.GetGauge() != nil {
					return m.GetGauge().GetValue()
				}
				return m.GetCounter().GetValue()
			}
		}
		t.Fatalf("there is no %s %s", name, label)
		return 0
	}
	text, _ := w.key(t, "alice", 0)
	before := value("noncegate_logins_total", "api_key")
	if _, err := w.Authenticate(request("Bearer " + text)); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Authenticate(request("Bearer x"))
	_, _ = w.Authenticate(request())
	_, _ = w.post(t, http.MethodPost, "", "")
	if got := value("noncegate_logins_total", "api_key"); got != before+1 {
		t.Errorf("%v keys let somebody in, want %v", got, before+1)
	}
	if malformed, missing := value("noncegate_logins_refused_total", "malformed"), value("noncegate_logins_refused_total", "missing"); malformed != 1 || missing != 2 {
		t.Errorf("%v malformed and %v missing, want 1 and 2", malformed, missing)
	}
	if got := value("noncegate_undeclared_labels_total", ""); got != 0 {
		t.Errorf("%v were counted under no label", got)
	}

	if got := value("noncegate_rights_reload_failed", ""); got != 0 {
		t.Errorf("the reload failed: %v", got)
	}
	write(t, w.file, "principals: [")
	eventually(t, "the failure shows", func() bool { return value("noncegate_rights_reload_failed", "") == 1 })
	age := value("noncegate_rights_age_seconds", "")
	eventually(t, "the age grows", func() bool { return value("noncegate_rights_age_seconds", "") > age })
	if _, err := w.Authenticate(request("Bearer " + text)); err != nil {
		t.Errorf("the rights that were in force are not: %v", err)
	}
	write(t, w.file, rightsFile)
	eventually(t, "the failure ends", func() bool { return value("noncegate_rights_reload_failed", "") == 0 })
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
}

// BenchmarkAuthenticate is what a login costs, but for the network.
func BenchmarkAuthenticate(b *testing.B) {
	key := newKey(b)
	w := newWorld(b, withTokens(b, key))
	apiKey, _ := w.key(b, "alice", 0)
	for name, credential := range map[string]string{"api_key": apiKey, "token_ES256": token(b, key, "alice", time.Now().Add(time.Hour))} {
		b.Run(name, func(b *testing.B) {
			r := request("Bearer " + credential)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Authenticate(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMay is what a right costs at each call.
func BenchmarkMay(b *testing.B) {
	w := newWorld(b, nil)
	apiKey, _ := w.key(b, "alice", 0)
	s, err := w.Authenticate(request("Bearer " + apiKey))
	expect.Must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if !s.May(access.RightAllocate, "a-signer") {
			b.Fatal("refused")
		}
	}
}
