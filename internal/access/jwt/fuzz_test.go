package jwt

import (
	"testing"
)

// FuzzKeySet: no key set makes what reads it panic, and what is taken has keys that
// tokens can be checked with.
func FuzzKeySet(f *testing.F) {
	for _, text := range []string{
		`{"keys":[{"kty":"EC","crv":"P-256","kid":"a","use":"sig","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`,
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","alg":"EdDSA"},{"kty":"oct","k":"AAAA"}]}`,
		`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"later"},null,{}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","x":"","y":"AA","x5c":["AAAA"]}]}`,
		`{"keys":{}}`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseKeySet(text)
		if (s == nil) == (err == nil) {
			t.Fatalf("got %v and %v", s, err)
		}
		if err != nil {
			return
		}
		for _, k := range s.keys {
			if !k.fitsAny() {
				t.Errorf("a key that fits no method: %+v", k)
			}
		}
	})
}
