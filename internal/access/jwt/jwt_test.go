package jwt_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	gojwt "github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"noncegate/internal/access/jwt"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signers are private keys, made once: RSA takes a while.
var signers = sync.OnceValue(func() map[string]crypto.Signer {
	made := map[string]crypto.Signer{}
	for id, make := range map[string]func() (crypto.Signer, error){
		"rsa":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
		"p256":  func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
		"other": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
		"p384":  func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
		"ed":    func() (crypto.Signer, error) { _, key, err := ed25519.GenerateKey(rand.Reader); return key, err },
	} {
		key, err := make()
		if err != nil {
			panic(err)
		}
		made[id] = key
	}
	return made
})

// set is the JSON Web Key Set of keys.
func set(t testing.TB, ids ...string) []byte {
	t.Helper()
	var s jose.JSONWebKeySet
	for _, id := range ids {
		s.Keys = append(s.Keys, jose.JSONWebKey{Key: signers()[id].Public(), KeyID: id, Use: "sig"})
	}
	text, err := json.Marshal(&s)
	expect.Must(t, err)
	return text
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	expect.Must(t, os.WriteFile(path, text, 0o600))
}

func config(keys string) jwt.Config {
	return jwt.Config{Methods: []string{"RS256", "ES256", "EdDSA"}, Issuer: "https://id.example", Audience: "noncegate", Keys: keys, Leeway: time.Minute}
}

func open(t testing.TB, cfg jwt.Config) *jwt.Verifier {
	t.Helper()
	v, err := jwt.Open(t.Context(), cfg)
	expect.Must(t, err)
	t.Cleanup(v.Stop)
	return v
}

// verifier is one with a key set in a file, and with other settings where they are changed.
func verifier(t testing.TB, change ...func(*jwt.Config)) *jwt.Verifier {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	write(t, path, set(t, "rsa", "p256", "p384", "ed"))
	cfg := config(path)
	for _, c := range change {
		c(&cfg)
	}
	return open(t, cfg)
}

// claims are those of a good token, changed.
func claims(change ...any) gojwt.MapClaims {
	c := gojwt.MapClaims{"iss": "https://id.example", "aud": "noncegate", "sub": "alice", "jti": "t-1", "exp": time.Now().Add(time.Hour).Unix()}
	for i := 0; i < len(change); i += 2 {
		if name := change[i].(string); change[i+1] == nil {
			delete(c, name)
		} else {
			c[name] = change[i+1]
		}
	}
	return c
}

// sign signs claims with a method and a key; kid nil leaves the header out.
func sign(t testing.TB, alg string, key any, kid any, c gojwt.Claims) string {
	t.Helper()
	token := gojwt.NewWithClaims(gojwt.GetSigningMethod(alg), c)
	if kid != nil {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	expect.Must(t, err)
	return text
}

func good(t testing.TB, change ...any) string {
	t.Helper()
	return sign(t, "ES256", signers()["p256"], "p256", claims(change...))
}

func in(d time.Duration) int64 { return time.Now().Add(d).Unix() }

func TestATokenSaysWhoItIsForAndUntilWhen(t *testing.T) {
	v := verifier(t)
	for alg, id := range map[string]string{"RS256": "rsa", "ES256": "p256", "EdDSA": "ed"} {
		exp := in(time.Hour)
		for _, kid := range []any{id, nil} {
			got, err := v.Check(t.Context(), sign(t, alg, signers()[id], kid, claims("exp", exp, "aud", []string{"x", "noncegate"})))
			want := jwt.Identity{Principal: "alice", ID: "t-1", Expires: time.Unix(exp, 0).Add(time.Minute)}
			if err != nil || got.Principal != want.Principal || got.ID != want.ID || !got.Expires.Equal(want.Expires) {
				t.Errorf("%s, kid %v: got %+v, %v, want %+v", alg, kid, got, err, want)
			}
		}
	}
	if got, err := v.Check(t.Context(), good(t, "jti", "with a space")); err != nil || len(got.ID) != 16 {
		t.Errorf("an id that is no word: got %+v, %v", got, err)
	}
}

// part encodes a part of a token.
func part(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestATokenThatIsWrongIsRefused(t *testing.T) {
	v := verifier(t)
	keys := signers()
	token := good(t)
	header, rest, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	der, err := x509.MarshalPKIXPublicKey(keys["rsa"].Public())
	expect.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	critical := gojwt.NewWithClaims(gojwt.SigningMethodES256, claims())
	critical.Header["kid"], critical.Header["crit"] = "p256", []string{"b64"}
	criticalText, err := critical.SignedString(keys["p256"])
	expect.Must(t, err)
	for _, c := range []struct {
		name, token string
		want        error
	}{
		{"empty", "", jwt.ErrMalformed},
		{"a word", "x", jwt.ErrMalformed},
		{"two parts", header + "." + payload, jwt.ErrMalformed},
		{"four parts", token + ".x", jwt.ErrMalformed},
		{"no base64", "!." + payload + "." + signature, jwt.ErrMalformed},
		{"padding", header + "=." + payload + "." + signature, jwt.ErrMalformed},
		{"no JSON", part("x") + "." + payload + "." + signature, jwt.ErrMalformed},
		{"too long", strings.Repeat("a", 9<<10), jwt.ErrMalformed},
		{"none", sign(t, "none", gojwt.UnsafeAllowNoneSignatureType, nil, claims()), jwt.ErrAlgorithm},
		{"None", part(`{"alg":"None"}`) + "." + payload + ".", jwt.ErrAlgorithm},
		{"no method", part(`{"typ":"JWT"}`) + "." + payload + "." + signature, jwt.ErrAlgorithm},
		{"a method that is a number", part(`{"alg":1}`) + "." + payload + "." + signature, jwt.ErrAlgorithm},
		{"HS256 with the public key of RSA", sign(t, "HS256", publicPEM, "rsa", claims()), jwt.ErrAlgorithm},
		{"HS256 with the DER of it", sign(t, "HS256", der, "rsa", claims()), jwt.ErrAlgorithm},
		{"a method that is not pinned", sign(t, "PS256", keys["rsa"], "rsa", claims()), jwt.ErrAlgorithm},
		{"ES384, not pinned", sign(t, "ES384", keys["p384"], "p384", claims()), jwt.ErrAlgorithm},
		{"RS256 by the name of another kind of key", sign(t, "RS256", keys["rsa"], "p256", claims()), jwt.ErrSignature},
		{"another key", sign(t, "ES256", keys["other"], "p256", claims()), jwt.ErrSignature},
		{"a key that is not there", sign(t, "ES256", keys["other"], "other", claims()), jwt.ErrSignature},
		{"kid that is a number", sign(t, "ES256", keys["p256"], 1, claims()), jwt.ErrSignature},
		{"kid that is empty", sign(t, "ES256", keys["p256"], "", claims()), jwt.ErrSignature},
		{"no signature", header + "." + payload + ".", jwt.ErrSignature},
		{"a signature of another token", header + "." + part(`{"sub":"root"}`) + "." + signature, jwt.ErrSignature},
		{"critical header", criticalText, jwt.ErrSignature},
		{"expired", good(t, "exp", in(-61*time.Second)), jwt.ErrExpired},
		{"not yet valid", good(t, "nbf", in(65*time.Second)), jwt.ErrNotYetValid},
		{"issued in the future", good(t, "iat", in(65*time.Second)), jwt.ErrNotYetValid},
		{"no expiry", good(t, "exp", nil), jwt.ErrClaims},
		{"expiry that is a text", good(t, "exp", "tomorrow"), jwt.ErrMalformed},
		{"expiry that never comes", good(t, "exp", 1e300), nil},
		{"expiry beyond the calendar", good(t, "exp", 1e15), jwt.ErrClaims},
		{"expiry before the calendar", good(t, "exp", -1), jwt.ErrExpired},
		{"another issuer", good(t, "iss", "https://evil.example"), jwt.ErrIssuer},
		{"no issuer", good(t, "iss", nil), jwt.ErrClaims},
		{"another audience", good(t, "aud", "other"), jwt.ErrAudience},
		{"other audiences", good(t, "aud", []string{"a", "b"}), jwt.ErrAudience},
		{"no audience", good(t, "aud", nil), jwt.ErrClaims},
		{"audience that is a number", good(t, "aud", 1), jwt.ErrClaims},
		{"no subject", good(t, "sub", nil), jwt.ErrClaims},
		{"subject that is a number", good(t, "sub", 7), jwt.ErrClaims},
		{"another issuer's expired one", good(t, "iss", "x", "exp", 1), jwt.ErrIssuer},
	} {
		got, err := v.Check(t.Context(), c.token)
		if err == nil || got != (jwt.Identity{}) {
			t.Errorf("%s: it was taken: %+v", c.name, got)
		} else if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

func TestClocksMayDifferByTheLeewayAndNoMore(t *testing.T) {
	exact, minute := verifier(t, func(c *jwt.Config) { c.Leeway = 0 }), verifier(t)
	for _, c := range []struct {
		of    *jwt.Verifier
		token string
		want  error
	}{
		{exact, good(t, "exp", in(time.Hour)), nil},
		{exact, good(t, "exp", in(-2*time.Second)), jwt.ErrExpired},
		{exact, good(t, "nbf", in(10*time.Second)), jwt.ErrNotYetValid},
		{minute, good(t, "exp", in(-55*time.Second)), nil},                           // ours is ahead
		{minute, good(t, "nbf", in(55*time.Second), "iat", in(55*time.Second)), nil}, // ours is behind
	} {
		if id, err := c.of.Check(t.Context(), c.token); !errors.Is(err, c.want) || err == nil && !id.Expires.After(time.Now()) {
			t.Errorf("got %+v, %v, want %v", id, err, c.want)
		}
	}
}

func TestAnotherClaimAndAPrefixMakeThePrincipal(t *testing.T) {
	v := verifier(t, func(c *jwt.Config) { c.Claim, c.Prefix = "client_id", "idp:" })
	if id, err := v.Check(t.Context(), good(t, "client_id", "relayer")); err != nil || id.Principal != "idp:relayer" {
		t.Errorf("got %+v, %v", id, err)
	}
}

func TestASettingThatIsWrongStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	write(t, keys, set(t, "p256"))
	file := func(text string) string {
		path := filepath.Join(dir, "wrong.json")
		write(t, path, []byte(text))
		return path
	}
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: signers()["p256"], KeyID: "p"}}})
	expect.Must(t, err)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	expect.Must(t, err)
	short, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: small.Public()}}})
	expect.Must(t, err)
	for _, c := range []struct {
		change func(*jwt.Config)
		want   string
	}{
		{func(c *jwt.Config) { c.Methods = nil }, "token methods: name one"},
		{func(c *jwt.Config) { c.Methods = []string{"HS256"} }, `token method "HS256" is not one of RS256`},
		{func(c *jwt.Config) { c.Methods = []string{"none"} }, `token method "none" is not one of RS256`},
		{func(c *jwt.Config) { c.Issuer = "" }, "token issuer: it must not be empty"},
		{func(c *jwt.Config) { c.Audience = "" }, "token audience: it must not be empty"},
		{func(c *jwt.Config) { c.Keys = "" }, "token keys: name the file"},
		{func(c *jwt.Config) { c.Keys = dir + "/absent" }, "no such file"},
		{func(c *jwt.Config) { c.Keys = "http://id.example/keys" }, "must be https, or http on this host"},
		{func(c *jwt.Config) { c.Keys = "ftp://id.example/keys" }, "must be https"},
		{func(c *jwt.Config) { c.Keys = "https://" }, "must be a path, or a URL without a password"},
		{func(c *jwt.Config) { c.Keys = "https://me:secret@id.example" }, "must be a path, or a URL without a password"},
		{func(c *jwt.Config) { c.Keys = "https://me:secret%zz@id.example" }, "must be a path, or a URL without a password"},
		{func(c *jwt.Config) { c.Leeway = time.Hour }, "token leeway 1h0m0s must be at most 10m"},
		{func(c *jwt.Config) { c.Refresh = -1 }, "neither may be below zero"},
		{func(c *jwt.Config) { c.Keys = file("x") }, "it is not a JSON Web Key Set"},
		{func(c *jwt.Config) { c.Keys = file(`{}`) }, "none of its 0 keys can sign a token"},
		{func(c *jwt.Config) { c.Keys = file(`{"keys":[{"kty":"new"},{"kty":"RSA","use":"enc"}]}`) }, "none of its 2 keys can sign a token"},
		{func(c *jwt.Config) { c.Keys = file(`{"keys":[{"kty":"oct","k":"AAAA"}]}`) }, "key 1 is private or secret"},
		{func(c *jwt.Config) { c.Keys = file(string(private)) }, "key 1 is private or secret"},
		{func(c *jwt.Config) { c.Keys = file(string(short)) }, "key 1 is an RSA key of 1024 bits; 2048 are needed"},
	} {
		cfg := config(keys)
		c.change(&cfg)
		v, err := jwt.Open(t.Context(), cfg)
		if err == nil {
			v.Stop()
			t.Errorf("it was taken, want %q", c.want)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %q, want it to have %q", err, c.want)
		} else if strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "secret%") {
			t.Errorf("it shows a password: %v", err)
		}
	}
}

func TestAKeySetInAFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	write(t, path, set(t, "p256"))
	cfg := config(path)
	cfg.Refresh = 5 * time.Millisecond
	v := open(t, cfg)
	other := sign(t, "ES256", signers()["other"], "other", claims())
	write(t, path, set(t, "other"))
	wait.Until(t, "the new key set to be in force", func() bool { _, err := v.Check(t.Context(), other); return err == nil })
	if _, err := v.Check(t.Context(), good(t)); !errors.Is(err, jwt.ErrSignature) {
		t.Errorf("the old key: got %v", err)
	}
	write(t, path, []byte("broken"))
	for range 100 {
		if _, err := v.Check(t.Context(), other); err != nil {
			t.Fatalf("while the file is broken: %v", err)
		}
	}
}

func TestAKeySetAtAURL(t *testing.T) {
	var asked atomic.Int32
	var answer atomic.Pointer[[]byte] // nil: it is away
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text := answer.Load()
		if text == nil {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		_, _ = w.Write(*text)
	}))
	t.Cleanup(server.Close)
	cfg := config(server.URL)
	cfg.Refresh = 20 * time.Millisecond
	v := open(t, cfg)
	if _, err := v.Check(t.Context(), good(t)); !errors.Is(err, jwt.ErrUnavailable) {
		t.Errorf("before the URL answered: got %v", err)
	}
	text := set(t, "p256")
	answer.Store(&text)
	wait.Until(t, "the new key set to be in force", func() bool { _, err := v.Check(t.Context(), good(t)); return err == nil })
	answer.Store(nil)
	for before := asked.Load(); asked.Load() < before+3; {
		if _, err := v.Check(t.Context(), good(t)); err != nil {
			t.Fatalf("while the URL does not answer: %v", err)
		}
	}
}

func TestTokensOfUnknownKeysDoNotAskTheURLEach(t *testing.T) {
	var asked atomic.Int32
	text := set(t, "p256")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	v := open(t, config(server.URL))
	other := sign(t, "ES256", signers()["other"], "other", claims())
	for range 100 {
		if _, err := v.Check(t.Context(), other); !errors.Is(err, jwt.ErrSignature) {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the URL was asked %d times", n)
	}
}

func TestARedirectDoesNotLeaveTheWayThatIsSafe(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/keys", http.StatusFound))
	t.Cleanup(server.Close)
	var log bytes.Buffer
	cfg := config(server.URL)
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	v := open(t, cfg)
	if _, err := v.Check(t.Context(), good(t)); !errors.Is(err, jwt.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	v.Stop()
	if !strings.Contains(log.String(), "must be https, or http on this host") {
		t.Errorf("the log has %s", log.String())
	}
}

// FuzzCheck looks for tokens that make the check panic, or that it takes although they
// were not signed by a key of the set.
func FuzzCheck(f *testing.F) {
	// The target runs in several processes, which have to agree about keys and token.
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	ec := `{"kty":"EC","crv":"P-256","kid":"p256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
	path := filepath.Join(f.TempDir(), "keys.json")
	write(f, path, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"ed","x":%q},%s]}`, base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey)), ec))
	v := open(f, config(path))
	token := sign(f, "EdDSA", key, "ed", claims("exp", 4_000_000_000))
	if _, err := v.Check(f.Context(), token); err != nil {
		f.Fatal(err)
	}
	header, _, _ := strings.Cut(token, ".")
	f.Add(token)
	f.Add("")
	f.Add("..")
	f.Add(part(`{"alg":"none"}`) + "." + part(`{}`) + ".")
	f.Add(part(`{"alg":"ES256","kid":"p256","crit":[]}`) + "." + part(`{"exp":1e400,"aud":[1],"iss":{}}`) + ".AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		signed, _, _ := strings.Cut(strings.TrimPrefix(token, header+"."), ".")
		if id, err := v.Check(t.Context(), text); err == nil && !strings.HasPrefix(text, header+"."+signed+".") {
			t.Errorf("it was taken: %+v", id)
		}
	})
}
