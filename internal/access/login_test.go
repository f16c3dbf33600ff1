package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
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
	"noncegate/test/lab/tlstest"
	"noncegate/test/lab/wait"
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

// That a certificate is verified is the TLS of the listeners' to do, and internal/tlsfiles' to show.
func TestAVerifiedCertificateLetsItsPrincipalIn(t *testing.T) {
	ca := tlstest.New(t, "ca")
	accepts := newWorld(t, func(c *access.Config) { c.Certificates = true })
	prefixed := newWorld(t, func(c *access.Config) { c.Certificates, c.CertificatePrefix = true, "cert:" })
	ignores := newWorld(t, nil)
	principals := "principals: {alice: [], 'spiffe://example/relayer': [], 'cert:alice': []}"
	const uri = "spiffe://example/relayer"
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct {
		w         *world
		leaf      tlstest.Leaf
		principal string // "": it is refused
		reason    access.LoginRefusal
		kind      error
		header    []string
		unchecked bool
	}{
		"a name":                {w: accepts, leaf: tlstest.Leaf{Name: "alice"}, principal: "alice"},
		"a URI":                 {w: accepts, leaf: tlstest.Leaf{Name: "alice", URIs: []string{uri}}, principal: uri},
		"behind a prefix":       {w: prefixed, leaf: tlstest.Leaf{Name: "alice"}, principal: "cert:alice"}, // and not the alice of an API key
		"nobody":                {w: accepts, leaf: tlstest.Leaf{Name: "bob"}, reason: access.LoginPrincipal, kind: access.ErrInvalid},
		"a space":               {w: accepts, leaf: tlstest.Leaf{Name: "with a space"}, reason: access.LoginCertificateName, kind: access.ErrInvalid},
		"no name":               {w: accepts, reason: access.LoginCertificateName, kind: access.ErrInvalid},
		"no name, with prefix":  {w: prefixed, reason: access.LoginCertificateName, kind: access.ErrInvalid},
		"two URIs":              {w: accepts, leaf: tlstest.Leaf{Name: "alice", URIs: []string{"a:b", "c:d"}}, reason: access.LoginCertificateName, kind: access.ErrInvalid},
		"a long one":            {w: accepts, leaf: tlstest.Leaf{URIs: []string{"urn:" + strings.Repeat("x", 200)}}, reason: access.LoginCertificateName, kind: access.ErrInvalid},
		"over":                  {w: accepts, leaf: tlstest.Leaf{Name: "alice", NotAfter: time.Now().Add(-time.Hour)}, reason: access.LoginExpired, kind: access.ErrExpired},
		"not verified":          {w: accepts, leaf: tlstest.Leaf{Name: "alice"}, unchecked: true, reason: access.LoginMissing, kind: access.ErrMissing},
		"not accepted":          {w: ignores, leaf: tlstest.Leaf{Name: "alice"}, reason: access.LoginMissing, kind: access.ErrMissing},
		"beside a wrong header": {w: accepts, leaf: tlstest.Leaf{Name: "alice"}, header: []string{"Bearer wrong"}, reason: access.LoginMalformed, kind: access.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, c.w.file, principals)
			if c.leaf.NotAfter.IsZero() {
				c.leaf.NotAfter = end
			}
			pair, err := tls.X509KeyPair(ca.Issue(c.leaf))
			expect.Must(t, err)
			r := request(c.header...)
			if r.TLS = (&tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}); !c.unchecked {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{pair.Leaf}}
			}
			if c.principal == "" {
				wait.Until(t, "the rights change", func() bool { _, err = c.w.Authenticate(r); return err != nil })
				wantRefused(t, err, c.reason, c.kind)
				return
			}
			var s *access.Session
			wait.Until(t, "the rights change", func() bool { s, err = c.w.Authenticate(r); return err == nil })
			if s.Principal != c.principal || s.Credential != "certificate:"+pair.Leaf.SerialNumber.Text(16) || !s.Expires.Equal(end) ||
				!errors.Is(s.Ended(end), access.ErrExpired) || s.Ended(end.Add(-1)) != nil {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestWhoIsLetInAndWhoIsNotIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, func(c *access.Config) { c.Metrics = reg })
	value := func(series string) float64 { return expect.Metric(t, reg, series) }
	text, _ := w.key(t, "alice", 0)
	before := value("logins_total{api_key}")
	if _, err := w.Authenticate(request("Bearer " + text)); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Authenticate(request("Bearer x"))
	_, _ = w.Authenticate(request())
	_, _ = w.post(t, http.MethodPost, "", "")
	if got := value("logins_total{api_key}"); got != before+1 {
		t.Errorf("%v keys let somebody in, want %v", got, before+1)
	}
	if malformed, missing := value("logins_refused_total{malformed}"), value("logins_refused_total{missing}"); malformed != 1 || missing != 2 {
		t.Errorf("%v malformed and %v missing, want 1 and 2", malformed, missing)
	}
	if got := value("undeclared_labels_total"); got != 0 {
		t.Errorf("%v were counted under no label", got)
	}

	if got := value("rights_reload_failed"); got != 0 {
		t.Errorf("the reload failed: %v", got)
	}
	write(t, w.file, "principals: [")
	wait.Until(t, "the failure shows", func() bool { return value("rights_reload_failed") == 1 })
	age := value("rights_age_seconds")
	wait.Until(t, "the age grows", func() bool { return value("rights_age_seconds") > age })
	if _, err := w.Authenticate(request("Bearer " + text)); err != nil {
		t.Errorf("the rights that were in force are not: %v", err)
	}
	write(t, w.file, rightsFile)
	wait.Until(t, "the failure ends", func() bool { return value("rights_reload_failed") == 0 })
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("got %v, %v", problems, err)
	}
}
