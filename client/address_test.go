package client

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAddressesAreNormalised(t *testing.T) {
	for raw, want := range map[string]string{
		"ws://h:1":         "ws://h:1/ws",
		"http://h":         "ws://h/ws",
		"https://h/":       "wss://h/ws",
		"wss://h/other?x=": "wss://h/other?x=",
		"h:1":              "", "ws:///ws": "", "ws://%zz": "",
	} {
		got, err := ownerURL(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("of an owner, %q: got %q, %v, want %q", raw, got, err, want)
		}
		cfg, err := Config{}.complete(raw)
		if (err == nil) != (want != "") || err == nil && (cfg.URLs[0] != want || cfg.Header != nil) {
			t.Errorf("%q: got %q, %v, %v, want %q", raw, cfg.URLs, cfg.Header, err, want)
		}
	}
}

func TestAUserOfAURLIsShownByBasic(t *testing.T) {
	const hidden = "nck_hidden"
	given := http.Header{"X-Trace": {"1"}}
	for _, c := range []struct {
		name   string
		url    string
		cfg    Config
		header string // of the upgrade; "": refused
		err    string
	}{
		{"a user", "wss://any:" + hidden + "@h", Config{}, "any:" + hidden, ""},
		{"beside another header", "ws://any:" + hidden + "@h:1/ws", Config{Header: given}, "any:" + hidden, ""},
		{"no name", "ws://:" + hidden + "@h", Config{}, ":" + hidden, ""},
		{"escaped", "ws://a%3Ab:a%2Fb%40c@h", Config{}, "a:b:a/b@c", ""},
		{"of one of several URLs", "ws://h", Config{URLs: []string{"ws://any:" + hidden + "@i", "ws://any:" + hidden + "@j"}}, "any:" + hidden, ""},
		{"two users", "ws://a:" + hidden + "@h", Config{URLs: []string{"ws://b:" + hidden + "@i"}}, "", "different users"},
		{"no password", "ws://" + hidden + "@h", Config{}, "", "must be NAME:KEY"},
		{"an empty password", "ws://" + hidden + ":@h", Config{}, "", "must be NAME:KEY"},
		{"a header beside it", "ws://any:" + hidden + "@h", Config{Header: http.Header{"authorization": {"Bearer x"}}}, "", "give one of them"},
		{"another scheme", "ftp://any:" + hidden + "@h", Config{}, "", `URL "…@h": the scheme must be ws`},
		{"no scheme", "any:" + hidden + "@h", Config{}, "", `URL "…@h": the scheme must be ws`},
		{"no host", "ws://any:" + hidden + "@", Config{}, "", "a host is needed"},
		{"not to be read", "ws://any:" + hidden + "@h:port", Config{}, "", "not HOST:PORT"},
		{"not to be read before the @", "ws://any:" + hidden + "%zz@h", Config{}, "", "not NAME:KEY"},
	} {
		cfg, err := c.cfg.complete(c.url)
		if c.header == "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), hidden) {
				t.Errorf("%s: got %v, want %q and no key", c.name, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		name, key, _ := (&http.Request{Header: cfg.Header}).BasicAuth()
		if strings.Contains(c.header, "a/b") { // the name has a colon, and net/http cuts at the first
			name, key = "a:b", strings.TrimPrefix(key, "b:")
		}
		if name+":"+key != c.header || strings.Contains(strings.Join(cfg.URLs, " "), "@") || len(cfg.Header) != len(c.cfg.Header)+1 {
			t.Errorf("%s: got %q %q, %q, %v", c.name, name, key, cfg.URLs, cfg.Header)
		}
	}
	if len(given) != 1 {
		t.Errorf("the caller's header was changed: %v", given)
	}
}

func TestAKeyInAURLIsInNoErrorAndNoLog(t *testing.T) {
	const key = "nck_hidden"
	var log strings.Builder
	shown := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Get("Authorization")
		http.Error(w, "the credential is not valid", http.StatusUnauthorized)
	}))
	defer server.Close()
	url := strings.Replace(server.URL, "http://", "ws://any:"+key+"@", 1)
	_, err := Dial(t.Context(), url, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	refused, ok := errors.AsType[*DialError](err)
	if !ok || refused.Status != http.StatusUnauthorized || strings.Contains(err.Error()+refused.URL+log.String(), key) {
		t.Errorf("got %v, and the log %s", err, log.String())
	}
	if got := <-shown; got != "Basic YW55Om5ja19oaWRkZW4=" {
		t.Errorf("it showed %q", got)
	}
}
