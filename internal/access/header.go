package access

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"noncegate/internal/access/apikey"
)

// maxCredential bounds the Authorization header, in bytes. A token with a few dozen
// groups in it has some 2,000.
const maxCredential = 8 << 10

// byHeader checks the Authorization header: an API key by Bearer or Basic, or, where
// tokens are accepted, a token by Bearer.
func (g *Gate) byHeader(r *http.Request) (*Session, login, *Refusal) {
	values := r.Header.Values("Authorization")
	if len(values) > 1 {
		return nil, "", refuse(LoginMalformed, ErrAmbiguous, nil)
	}
	text, keyOnly, err := credentialOf(values[0])
	if err != nil {
		return nil, "", refuse(LoginMalformed, ErrInvalid, err)
	}
	switch {
	case apikey.Is(text):
		return g.byKey(r.Context(), text)
	case g.tokens != nil && !keyOnly:
		return g.byToken(r.Context(), text)
	}
	return nil, "", refuse(LoginMalformed, ErrInvalid, apikey.ErrFormat)
}

// byKnownKey makes the session of a good API key that is known without asking the
// store; nil: there is none.
func (g *Gate) byKnownKey(r *http.Request) *Session {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return nil
	}
	text, _, err := credentialOf(values[0])
	if err != nil {
		return nil
	}
	k, err := g.keys.CheckKnown(text)
	if err != nil {
		return nil
	}
	return g.keySession(k)
}

// credentialOf returns the credential of an Authorization header. keyOnly: it may be
// an API key, and nothing else. The error is for the log and does not show it.
func credentialOf(header string) (text string, keyOnly bool, err error) {
	if len(header) > maxCredential {
		return "", false, fmt.Errorf("the Authorization header is longer than %d bytes", maxCredential)
	}
	scheme, rest, _ := strings.Cut(header, " ")
	rest = strings.Trim(rest, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
	case strings.EqualFold(scheme, "Basic"):
		keyOnly = true
		if rest, err = password(rest); err != nil {
			return "", false, err
		}
	default:
		return "", false, errors.New("the Authorization header is neither Bearer nor Basic with a credential")
	}
	if rest == "" || strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", false, errors.New("the credential of the Authorization header is not one word of visible ASCII")
	}
	return rest, keyOnly, nil
}

// password returns the password of Basic credentials. The key tells its
// principal, so the user name may be any.
func password(credentials string) (string, error) {
	pair, err := base64.StdEncoding.DecodeString(credentials)
	if err != nil {
		return "", errors.New("the Basic credentials of the Authorization header are not base64")
	}
	_, word, ok := strings.Cut(string(pair), ":")
	if !ok {
		return "", errors.New("the Basic credentials of the Authorization header have no password")
	}
	return word, nil
}
