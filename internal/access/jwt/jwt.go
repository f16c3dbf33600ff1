// Package jwt checks JSON Web Tokens of an external issuer.
//
// The settings pin the signing methods, asymmetric ones only; the package ignores the
// method that a token names. Issuer, audience and expiry are required. Clocks may
// differ by Config.Leeway, which extends a token's validity at both ends. The keys come
// from a JSON Web Key Set in a file or at a URL, which the package reads regularly, and
// when a token names an unknown key. If a key set cannot be read, the previous one
// stays in force for Config.Trust.
//
// A Verifier owns one goroutine, which reads the key set. Stop ends it and waits for it.
package jwt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"noncegate/internal/reload"
)

// Methods are the methods of signing that may be pinned.
var Methods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// maxBytes bounds a token.
const maxBytes = 8 << 10

// Errors of a token.
var (
	ErrMalformed   = errors.New("this is not a token")
	ErrAlgorithm   = errors.New("the token is signed by a method that is not admitted")
	ErrSignature   = errors.New("the signature of the token is wrong, or of a key that is not in the key set")
	ErrIssuer      = errors.New("the token is of another issuer")
	ErrAudience    = errors.New("the token is for another audience")
	ErrExpired     = errors.New("the token has expired")
	ErrNotYetValid = errors.New("the token is not valid yet")
	ErrClaims      = errors.New("the token lacks a claim that is needed")
	ErrUnavailable = errors.New("the token cannot be checked now")
)

// Config are the settings of a Verifier. Methods, Issuer, Audience and Keys are required.
type Config struct {
	// Methods are those by which tokens may be signed.
	Methods []string
	// Issuer is what iss must be.
	Issuer string
	// Audience is what aud must be or have.
	Audience string
	// Keys is where the JSON Web Key Set is: a path, or an URL. It is https, or http on
	// this host.
	Keys string
	// Claim names the claim that is the principal. "": sub.
	Claim string
	// Prefix is put before it, so that the issuer of tokens cannot make one for the
	// principal of an API key. "": none.
	Prefix string
	// Leeway is how far the clocks may differ. Longer lets expired tokens in for longer.
	// 0: not at all.
	Leeway time.Duration
	// Refresh is how often the key set is read. 0: 2s of a file, 5m of a URL.
	Refresh time.Duration
	// Trust is how long a key set is good that cannot be read again. 0: 24h.
	Trust time.Duration
	// Client asks the URL. nil: one that follows no redirect to http.
	Client *http.Client
	// Log is told when the key set cannot be read. It may be nil.
	Log *slog.Logger
}

func (c *Config) validate() error {
	if len(c.Methods) == 0 {
		return errors.New("token methods: name one at least")
	}
	for _, m := range c.Methods {
		if !slices.Contains(Methods, m) {
			return fmt.Errorf("token method %q is not one of %s", m, strings.Join(Methods, ", "))
		}
	}
	switch {
	case c.Issuer == "":
		return errors.New("token issuer: it must not be empty")
	case c.Audience == "":
		return errors.New("token audience: it must not be empty")
	case c.Keys == "":
		return errors.New("token keys: name the file or the URL of a JSON Web Key Set")
	case c.Leeway < 0 || c.Leeway > 10*time.Minute:
		return fmt.Errorf("token leeway %v must be at most 10m", c.Leeway)
	case c.Refresh < 0 || c.Trust < 0:
		return fmt.Errorf("token keys are read every %v and trusted for %v: neither may be below zero", c.Refresh, c.Trust)
	}
	return nil
}

// Identity is what a token says.
type Identity struct {
	Principal string
	// ID tells the token from others: its jti, or else the beginning of its SHA-256.
	ID string
	// Expires is when the token is not good any more: its expiry and the leeway.
	Expires time.Time
}

// Verifier checks tokens. Its methods may be called by any goroutine.
type Verifier struct {
	cfg    Config
	parser *gojwt.Parser
	keys   *reload.Value[keySet]
}

// Open reads the key set, and goes on reading it until Stop. A file must be there and
// good. A URL that does not answer does not stop the start: tokens are ErrUnavailable
// until it does.
func Open(ctx context.Context, cfg Config) (*Verifier, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Claim, cfg.Trust = cmp.Or(cfg.Claim, "sub"), cmp.Or(cfg.Trust, 24*time.Hour)
	v := &Verifier{cfg: cfg, parser: gojwt.NewParser(
		gojwt.WithValidMethods(cfg.Methods), gojwt.WithIssuer(cfg.Issuer), gojwt.WithAudience(cfg.Audience),
		gojwt.WithExpirationRequired(), gojwt.WithIssuedAt(), gojwt.WithLeeway(cfg.Leeway), gojwt.WithStrictDecoding())}
	var err error
	if v.keys, err = openKeys(ctx, &cfg); err != nil {
		return nil, &KeysError{err}
	}
	return v, nil
}

// KeysError is why what Config.Keys names cannot be used.
type KeysError struct{ Err error }

// Error implements error.
func (e *KeysError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *KeysError) Unwrap() error { return e.Err }

// Stop ends the reading of the key set. Checks go on with what was read until
// Config.Trust is over.
func (v *Verifier) Stop() { v.keys.Stop() }

// Soon has the key set read now. It does not wait for that.
func (v *Verifier) Soon() { v.keys.Soon() }

// Check returns the identity a token is for. Its errors are those of this package.
func (v *Verifier) Check(ctx context.Context, text string) (Identity, error) {
	if len(text) > maxBytes {
		return Identity{}, ErrMalformed
	}
	id, err := v.check(text)
	if !errors.Is(err, errNoKey) {
		return id, err
	}
	if err := v.keys.Again(ctx); err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if id, err = v.check(text); errors.Is(err, errNoKey) {
		return Identity{}, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return id, err
}

// check checks a token by the keys that are there. It fails with errNoKey when the
// token is signed by none of them.
func (v *Verifier) check(text string) (Identity, error) {
	claims := gojwt.MapClaims{}
	token, err := v.parser.ParseWithClaims(text, claims, v.keyOf)
	if err != nil {
		return Identity{}, v.sentence(token, err)
	}
	principal, _ := claims[v.cfg.Claim].(string)
	if principal == "" {
		return Identity{}, fmt.Errorf("%w: %s, a text", ErrClaims, v.cfg.Claim)
	}
	// They were checked to be there, and to be numbers.
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil || expires.Unix() > maxUnix || expires.Unix() < 0 {
		return Identity{}, fmt.Errorf("%w: exp, a time before the year 10000", ErrClaims)
	}
	return Identity{Principal: v.cfg.Prefix + principal, ID: idOf(text, claims), Expires: expires.Add(v.cfg.Leeway)}, nil
}

// maxUnix is the last second of the year 9999.
const maxUnix = 253402300799

// sentence says what is wrong with a token. The library tells all that is; the first of
// the table is told on.
func (v *Verifier) sentence(token *gojwt.Token, err error) error {
	if errors.Is(err, errNoKey) || errors.Is(err, ErrUnavailable) {
		return err
	}
	if token != nil && token.Header != nil && !errors.Is(err, gojwt.ErrTokenMalformed) {
		if alg, _ := token.Header["alg"].(string); !slices.Contains(v.cfg.Methods, alg) {
			return ErrAlgorithm
		}
	}
	for _, known := range []struct{ err, is error }{
		{gojwt.ErrTokenMalformed, ErrMalformed},
		{gojwt.ErrTokenUnverifiable, ErrSignature},
		{gojwt.ErrTokenSignatureInvalid, ErrSignature},
		{gojwt.ErrTokenInvalidIssuer, ErrIssuer},
		{gojwt.ErrTokenInvalidAudience, ErrAudience},
		{gojwt.ErrTokenRequiredClaimMissing, ErrClaims},
		{gojwt.ErrTokenNotValidYet, ErrNotYetValid},
		{gojwt.ErrTokenUsedBeforeIssued, ErrNotYetValid},
		{gojwt.ErrTokenExpired, ErrExpired},
	} {
		if errors.Is(err, known.err) {
			return fmt.Errorf("%w: %w", known.is, err)
		}
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// keyOf finds the key that a token names. The method was checked before.
func (v *Verifier) keyOf(token *gojwt.Token) (any, error) {
	if _, critical := token.Header["crit"]; critical {
		return nil, errors.New("the header has crit, and so something that must be understood")
	}
	keys := v.keys.Get()
	if good, _ := v.keys.State(); keys == nil || time.Since(good) > v.cfg.Trust {
		return nil, fmt.Errorf("%w: there is no key set of late", ErrUnavailable)
	}
	kid, named := token.Header["kid"]
	name, _ := kid.(string)
	if named && name == "" {
		return nil, errors.New("kid is not a text")
	}
	return keys.find(name, token.Method.Alg())
}

func idOf(text string, claims gojwt.MapClaims) string {
	jti, _ := claims["jti"].(string)
	if jti == "" || len(jti) > 64 || strings.ContainsFunc(jti, func(c rune) bool { return c <= ' ' || c > '~' }) {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:8])
	}
	return jti
}
