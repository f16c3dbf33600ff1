package jsonrpc

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Endpoint is the address of a node. Its credentials are in no text that it returns.
type Endpoint struct {
	target  string // without userinfo
	auth    string // the Authorization header; "": none
	host    string
	ws      bool
	secrets []string // longest first
}

// The rules of an address. The text that broke one is never shown: it may have
// credentials, also where it cannot be read.
var (
	errUnreadable = errors.New("is no URL that can be read; special characters in user and password must be percent-encoded")
	errScheme     = errors.New("must begin with ws://, wss://, http:// or https://")
	errHost       = errors.New("must have a host")
	errFragment   = errors.New("must have no fragment (#…)")
)

// ParseEndpoint reads the address of a node. User and password in it are sent as Basic
// authorization. The error is a rule and shows nothing of raw.
func ParseEndpoint(raw string) (*Endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errUnreadable
	}
	e := &Endpoint{host: u.Host}
	switch {
	case u.Scheme == "ws" || u.Scheme == "wss":
		e.ws = true
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errScheme
	}
	switch {
	case u.Hostname() == "":
		return nil, errHost
	case u.Fragment != "":
		return nil, errFragment
	}
	e.takeCredentials(u)
	e.target = u.String()
	return e, nil
}

// minSecret is the shortest part of a path or a query that is taken for a key. Shorter
// ones are words such as "v3" or "mainnet".
const minSecret = 12

// takeCredentials moves user and password into a header, and notes everything in the
// address that may be a key.
func (e *Endpoint) takeCredentials(u *url.URL) {
	note := func(s string, minLen int) {
		if len(s) >= minLen {
			e.secrets = append(e.secrets, s)
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		token := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password))
		e.auth = "Basic " + token
		note(token, 1)
		note(password, 1)
		note(url.QueryEscape(password), 1)
		note(u.User.String(), 1)
		if password == "" {
			note(u.User.Username(), 1)
		}
		u.User = nil
	}
	for _, part := range strings.Split(u.EscapedPath(), "/") {
		note(part, minSecret)
	}
	for _, values := range u.Query() {
		for _, v := range values {
			note(v, minSecret)
			note(url.QueryEscape(v), minSecret)
		}
	}
	slices.SortFunc(e.secrets, func(a, b string) int { return len(b) - len(a) })
}

// Host returns host and port as they were written, without credentials.
func (e *Endpoint) Host() string { return e.host }

// WebSocket reports whether the scheme is ws or wss.
func (e *Endpoint) WebSocket() bool { return e.ws }

// String returns scheme and host.
func (e *Endpoint) String() string {
	scheme, _, _ := strings.Cut(e.target, ":")
	return scheme + "://" + e.host
}

func (e *Endpoint) header() http.Header {
	h := http.Header{}
	if e.auth != "" {
		h.Set("Authorization", e.auth)
	}
	return h
}

// maxText bounds what is kept of a sentence of a node, in bytes.
const maxText = 512

// clean returns a text of a node as it may be shown: without what may be a key, in one
// printable line, shortened.
func (e *Endpoint) clean(s string) string {
	const room = 8 * maxText // a secret that is cut in two would not be found
	if len(s) > room {
		s = s[:room]
	}
	for _, secret := range e.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// cleaned is an error whose text may be shown, with the tree of the one it was.
type cleaned struct {
	text string
	err  error
}

func (c *cleaned) Error() string { return c.text }
func (c *cleaned) Unwrap() error { return c.err }

// cleanError makes err fit to be shown. The error of an HTTP client loses the address.
func (e *Endpoint) cleanError(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return &cleaned{text: e.clean(err.Error()), err: err}
}
