package jwt

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"noncegate/internal/reload"
)

const (
	// maxKeySet bounds a key set, in bytes.
	maxKeySet = 1 << 20
	// minRSA bounds the keys of RSA below, in bits.
	minRSA = 2048
)

// errNoKey: the key set does not have the key of a token.
var errNoKey = errors.New("the key set does not have its key")

// keySet is the keys by which tokens may be signed.
type keySet struct {
	keys []publicKey
}

type publicKey struct {
	id  string // "": it has none
	alg string // the only method it is for; "": all that fit
	key crypto.PublicKey
}

// find returns the key of an id for a method. Without an id there must be only one that
// the method fits.
func (s *keySet) find(id, alg string) (crypto.PublicKey, error) {
	var found crypto.PublicKey
	for _, k := range s.keys {
		if id != "" && k.id != id || !k.fits(alg) {
			continue
		}
		if found != nil {
			return nil, errors.New("the token does not say which of several keys it is signed by")
		}
		found = k.key
	}
	if found == nil {
		return nil, errNoKey
	}
	return found, nil
}

// curves are the sizes of the curves that methods are bound to.
var curves = map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}

// fits reports whether the key may be used by a method.
func (k *publicKey) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		return curves[alg] == key.Curve.Params().BitSize
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// parseKeySet reads a JSON Web Key Set. Keys of kinds and uses that tokens are not
// signed by are left out; private and secret ones are an error, since every reader of
// the set could sign.
func parseKeySet(text []byte) (*keySet, error) {
	var list struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	s := &keySet{}
	for i, raw := range list.Keys {
		var k jose.JSONWebKey
		if err := k.UnmarshalJSON(raw); err != nil {
			continue // of a kind that is not known
		}
		if !k.IsPublic() {
			return nil, fmt.Errorf("key %d is private or secret; the set must have public keys only", i+1)
		}
		public := publicKey{id: k.KeyID, alg: k.Algorithm, key: k.Key}
		if !k.Valid() || k.Use != "" && k.Use != "sig" || !public.fitsAny() {
			continue
		}
		if key, ok := k.Key.(*rsa.PublicKey); ok && key.N.BitLen() < minRSA {
			return nil, fmt.Errorf("key %d is an RSA key of %d bits; %d are needed", i+1, key.N.BitLen(), minRSA)
		}
		s.keys = append(s.keys, public)
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys can sign a token", len(list.Keys))
	}
	return s, nil
}

func (k *publicKey) fitsAny() bool {
	for _, m := range Methods {
		if k.fits(m) {
			return true
		}
	}
	return false
}

// openKeys begins to read the key set.
func openKeys(ctx context.Context, cfg *Config) (*reload.Value[keySet], error) {
	rc := reload.Config{Name: "the key set of tokens", Every: cfg.Refresh, Log: cfg.Log}
	if !strings.Contains(cfg.Keys, "://") {
		return openKeyFile(ctx, rc, cfg.Keys)
	}
	if err := checkURL(cfg.Keys); err != nil {
		return nil, err
	}
	rc.Every = cmp.Or(rc.Every, 5*time.Minute)
	rc.Retry, rc.Gap = min(rc.Every, 10*time.Second), min(rc.Every, 10*time.Second)
	client := cmp.Or(cfg.Client, newClient())
	return reload.OpenLater(ctx, rc, func(ctx context.Context, _ *keySet) (*keySet, error) {
		s, err := fromURL(ctx, client, cfg.Keys)
		if err != nil {
			return nil, fmt.Errorf("token keys %s: %w", cfg.Keys, err)
		}
		return s, nil
	}), nil
}

func openKeyFile(ctx context.Context, rc reload.Config, path string) (*reload.Value[keySet], error) {
	rc.Every = cmp.Or(rc.Every, 2*time.Second)
	load := reload.Files([]string{path}, maxKeySet, func(contents [][]byte) (*keySet, error) {
		s, err := parseKeySet(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return s, nil
	})
	v, err := reload.Open(ctx, rc, load)
	if err != nil {
		return nil, fmt.Errorf("token keys %w", err)
	}
	return v, nil
}

// checkURL admits what cannot be changed on the way.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil { // it is not shown: it may have a password
		return errors.New("token keys must be a path, or a URL without a password")
	}
	if u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("token keys %q must be https, or http on this host: whoever could change the answer could sign tokens", text)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newClient makes a client that keeps no connection between two readings.
func newClient() *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second}
	return &http.Client{Transport: transport, CheckRedirect: noDowngrade}
}

// noDowngrade follows redirects to what checkURL admits.
func noDowngrade(r *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("it was redirected five times")
	}
	return checkURL(r.URL.String())
}

func fromURL(ctx context.Context, client *http.Client, from string) (*keySet, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxKeySet+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxKeySet:
		return nil, fmt.Errorf("it is larger than %d bytes", maxKeySet)
	}
	return parseKeySet(text)
}
