package access_test

import (
	"encoding/base64"
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

func TestAKeyLetsItsPrincipalInByBasicToo(t *testing.T) {
	w := newWorld(t, nil)
	text, k := w.key(t, "alice", time.Hour)
	for _, header := range []string{
		basic("any", text), basic("", text), basic("bob", text), basic("é", text), strings.Replace(basic("any", text), "Basic", "bAsIc ", 1),
	} {
		s, err := w.Authenticate(request(header))
		if err != nil {
			t.Errorf("%q: %v", header, err)
			continue
		}
		if s.Principal != "alice" || s.Credential != "key:"+k.ID || s.Expires.Sub(k.Expires).Abs() > time.Second || !s.May(access.RightAllocate, "a1") || s.May(access.RightRead, "a1") {
			t.Errorf("%q: got %+v", header, s)
		}
	}
	if _, body := w.post(t, http.MethodPost, basic("any", text), ""); body["ticket"] == "" {
		t.Errorf("no ticket: %v", body)
	}
}

// What is no key of ours is refused as it is by Bearer, and a token is none: it would
// be taken by Bearer.
func TestBasicWithoutAGoodKeyIsRefused(t *testing.T) {
	signer := newKey(t)
	w := newWorld(t, withTokens(t, signer))
	text, k := w.key(t, "alice", 0)
	stranger, _ := w.key(t, "stranger", 0)
	other, _ := apikey.Generate("alice", 0)
	jwt := token(t, signer, "alice", time.Now().Add(time.Hour))
	if _, err := w.Authenticate(request("Bearer " + jwt)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		header []string
		reason access.LoginRefusal
		kind   error
	}{
		{"a password", []string{basic("alice", "secret")}, access.LoginMalformed, access.ErrInvalid},
		{"an unknown key", []string{basic("any", other)}, access.LoginUnknown, access.ErrInvalid},
		{"another secret", []string{basic("any", apikey.Prefix+k.ID+other[len(apikey.Prefix)+len(k.ID):])}, access.LoginSecret, access.ErrInvalid},
		{"the key of nobody", []string{basic("any", stranger)}, access.LoginPrincipal, access.ErrInvalid},
		{"the key as the name", []string{basic(text, "")}, access.LoginMalformed, access.ErrInvalid},
		{"the key and something more", []string{basic("any", text+":x")}, access.LoginMalformed, access.ErrInvalid},
		{"no colon", []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(text))}, access.LoginMalformed, access.ErrInvalid},
		{"no base64", []string{"Basic " + text}, access.LoginMalformed, access.ErrInvalid},
		{"nothing", []string{"Basic"}, access.LoginMalformed, access.ErrInvalid},
		{"a token", []string{basic("any", jwt)}, access.LoginMalformed, access.ErrInvalid},
		{"too long", []string{basic("any", strings.Repeat("x", 8<<10))}, access.LoginMalformed, access.ErrInvalid},
		{"Bearer beside it", []string{"Bearer " + text, basic("any", text)}, access.LoginMalformed, access.ErrAmbiguous},
		{"Bearer behind it", []string{basic("any", text), "Bearer " + text}, access.LoginMalformed, access.ErrAmbiguous},
	} {
		_, err := w.Authenticate(request(c.header...))
		t.Run(c.name, func(t *testing.T) { wantRefused(t, err, c.reason, c.kind) })
		if err != nil && (strings.Contains(err.Error(), text[20:]) || strings.Contains(err.Error(), jwt[20:])) {
			t.Errorf("%s: the log is told the secret: %v", c.name, err)
		}
	}
}

func TestAGoodKeyIsLetInByBasicFromAnAddressOfWhichOthersAreWrong(t *testing.T) {
	w := newWorld(t, nil)
	text, _ := w.key(t, "alice", 0)
	from := func(header string) error {
		r := request(header)
		r.RemoteAddr = "192.0.2.1:1"
		_, err := w.Authenticate(r)
		return err
	}
	for range 20 {
		wantRefused(t, from(basic("any", "x")), access.LoginMalformed, access.ErrInvalid)
	}
	wantRefused(t, from(basic("any", "x")), access.LoginThrottled, access.ErrThrottled)
	expect.Check(t, from(basic("any", text)))
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
