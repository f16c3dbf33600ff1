package access_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
	"noncegate/test/lab/expect"
)

// basic is the header that clients make of NAME:WORD@ in a URL.
func basic(name, word string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+word))
}

func TestAKeyLetsItsPrincipalIn(t *testing.T) {
	w := newWorld(t, nil)
	text, k := w.key(t, "alice", time.Hour)
	for _, header := range []string{
		"Bearer " + text, "bearer  " + text, basic("any", text), basic("", text), basic("bob", text), basic("é", text),
		strings.Replace(basic("any", text), "Basic", "bAsIc ", 1),
	} {
		s, err := w.Authenticate(request(header))
		if err != nil {
			t.Errorf("%q: %v", header, err)
			continue
		}
		if s.Principal != "alice" || s.Credential != "key:"+k.ID || s.Expires.Sub(k.Expires).Abs() > time.Second || s.Ended(time.Now()) != nil ||
			!errors.Is(s.Ended(time.Now().Add(time.Hour)), access.ErrExpired) {
			t.Errorf("%q: got %+v", header, s)
		}
		if !s.May(access.RightAllocate, "a1") || s.May(access.RightAllocate, "b1") || s.May(access.RightRead, "a1") || s.Quota().Connections != 3 {
			t.Errorf("%q: the rights and the quota are not those of the file", header)
		}
	}
	if _, body := w.post(t, http.MethodPost, basic("any", text), ""); body["ticket"] == "" {
		t.Errorf("no ticket: %v", body)
	}
}

// A token is no key, and is taken by Bearer only.
func TestWithoutAGoodCredentialNobodyComesIn(t *testing.T) {
	signer := newKey(t)
	w, noTokens := newWorld(t, withTokens(t, signer)), newWorld(t, nil)
	text, k := w.key(t, "alice", 0)
	stranger, _ := w.key(t, "stranger", 0)
	expired, _ := w.key(t, "bob", time.Microsecond)
	other, _ := apikey.Generate("alice", 0)
	wrong := apikey.Prefix + k.ID + other[len(apikey.Prefix)+len(k.ID):]
	jwt := token(t, signer, "alice", time.Now().Add(time.Hour))
	both := func(word string) [][]string { return [][]string{{"Bearer " + word}, {basic("any", word)}} }
	for name, c := range map[string]struct {
		headers [][]string // each is refused
		reason  access.LoginRefusal
		kind    error
	}{
		"none":            {[][]string{nil}, access.LoginMissing, access.ErrMissing},
		"no word":         {[][]string{{""}, {"Bearer "}, {"Basic"}, {basic(text, "")}}, access.LoginMalformed, access.ErrInvalid},
		"another scheme":  {[][]string{{"Digest " + text}, {text}, {"Basic " + text}}, access.LoginMalformed, access.ErrInvalid},
		"more":            {[][]string{{"Bearer " + text + " x"}, {"Bearer " + text + "\x7f"}, {basic("any", text+":x")}}, access.LoginMalformed, access.ErrInvalid},
		"too long":        {both(strings.Repeat("x", 9<<10)), access.LoginMalformed, access.ErrInvalid},
		"no key":          {both(text[:len(text)-1]), access.LoginMalformed, access.ErrInvalid},
		"no colon":        {[][]string{{"Basic " + base64.StdEncoding.EncodeToString([]byte(text))}}, access.LoginMalformed, access.ErrInvalid},
		"a token":         {[][]string{{basic("any", jwt)}}, access.LoginMalformed, access.ErrInvalid},
		"two":             {[][]string{{"Bearer " + text, "Bearer " + text}, {"Bearer " + text, basic("any", text)}, {basic("any", text), "Bearer " + text}}, access.LoginMalformed, access.ErrAmbiguous},
		"an unknown key":  {both(other), access.LoginUnknown, access.ErrInvalid},
		"another secret":  {both(wrong), access.LoginSecret, access.ErrInvalid},
		"expired":         {both(expired), access.LoginExpired, access.ErrExpired},
		"the key of none": {both(stranger), access.LoginPrincipal, access.ErrInvalid},
	} {
		for _, header := range c.headers {
			_, err := w.Authenticate(request(header...))
			t.Run(name, func(t *testing.T) { wantRefused(t, err, c.reason, c.kind) })
			if err != nil && (strings.Contains(err.Error(), text[20:]) || strings.Contains(err.Error(), jwt[20:])) {
				t.Errorf("%s: the log is told the secret: %v", name, err)
			}
		}
	}
	_, err := noTokens.Authenticate(request("Bearer " + jwt))
	wantRefused(t, err, access.LoginMalformed, access.ErrInvalid)
	_, err = w.Authenticate(request("Bearer " + jwt))
	expect.Check(t, err)
}

func TestWhoIsNotLetInIsToldHowToAuthenticate(t *testing.T) {
	both := []string{`Bearer realm="noncegate"`, `Basic realm="noncegate", charset="UTF-8"`}
	for _, c := range []struct {
		err    error
		origin string
		want   []string
		said   string
	}{
		{access.ErrMissing, "", both, "no credential was given"},
		{access.ErrInvalid, "", both, "the credential is not valid"},
		{access.ErrAmbiguous, "", both, "more than one Authorization header was given; send one, with Bearer or Basic"},
		{access.ErrExpired, "", both, "the credential has expired"},
		{access.ErrInvalid, "https://app.example", both[:1], "the credential is not valid"}, // else its browser asks for a password
		{access.ErrThrottled, "", nil, access.ErrThrottled.Error()},
		{access.ErrUnavailable, "", nil, access.ErrUnavailable.Error()},
		{errors.New("dial tcp 10.0.0.1"), "", nil, access.ErrUnavailable.Error()}, // which is not ours to tell
	} {
		r, rec := request(), httptest.NewRecorder()
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		status, said := access.Answer(rec, r, c.err)
		got := rec.Header().Values("WWW-Authenticate")
		if said != c.said || !slices.Equal(got, c.want) || (status == http.StatusUnauthorized) != (c.want != nil) {
			t.Errorf("%v from %q: got %d %q, %q", c.err, c.origin, status, said, got)
		}
	}
}
