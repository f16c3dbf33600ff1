package ws

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"noncegate/test/lab/inprocess"
)

// FuzzOrigin: a page is let in by the letter, or where its host is the one that was
// asked.
func FuzzOrigin(f *testing.F) {
	for _, origin := range []string{"https://app.example", "https://APP.example:443", "null", "", "https://app.example@evil.example", "//app.example", "https://app.example/path", "%"} {
		f.Add(origin, "app.example")
	}
	f.Fuzz(func(t *testing.T, origin, host string) {
		r := &http.Request{Host: host, Header: http.Header{"Origin": {origin}}}
		listed := Origins{Allowed: []string{"https://app.example"}}
		if got := listed.Allow(r); got != (origin == "https://app.example") {
			t.Errorf("%q beside a list: %v", origin, got)
		}
		_, page, _ := strings.Cut(origin, "//")
		if end := strings.IndexAny(page, "/?#"); end >= 0 {
			page = page[:end]
		}
		page = page[strings.LastIndexByte(page, '@')+1:]
		if new(Origins).Allow(r) && !strings.EqualFold(page, host) && !strings.Contains(page, "%") {
			t.Errorf("the page %q was let in at %q", origin, host)
		}
	})
}

func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		origins Origins
		header  []string
		want    bool
	}{
		{Origins{}, nil, true},
		{Origins{}, []string{"http://gateway:80"}, true}, // of the host that was asked
		{Origins{}, []string{"https://GATEWAY:80"}, true},
		{Origins{}, []string{"http://other"}, false},
		{Origins{}, []string{"null"}, false},
		{Origins{}, []string{""}, false},
		{Origins{}, []string{"http://gateway:80", "http://gateway:80"}, false},
		{Origins{Addresses: true}, []string{"http://gateway:80"}, false},
		{Origins{Addresses: true}, nil, true},
		{Origins{RefuseMissing: true}, nil, false},
		{Origins{RefuseMissing: true}, []string{"http://gateway:80"}, true},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"https://app.example"}, true},
		{Origins{Allowed: []string{"https://app.example"}}, nil, true},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"http://gateway:80"}, false},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"http://app.example"}, false},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"https://app.example:8443"}, false},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"https://app.example.evil"}, false},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"https://evil.app.example"}, false},
		{Origins{Allowed: []string{"https://app.example"}}, []string{"https://app.example/"}, false},
	} {
		r := &http.Request{Host: "gateway:80", Header: http.Header{}}
		if c.header != nil {
			r.Header["Origin"] = c.header
		}
		if got := c.origins.Allow(r); got != c.want {
			t.Errorf("%+v: %q allowed: %v", c.origins, c.header, got)
		}
	}
}

func TestAPageThatMayNotConnectIsRefusedBeforeItsCredentialIsLookedAt(t *testing.T) {
	p := new(inprocess.People)
	p.Refuse(errors.New("must not be asked"))
	g := guardedGateway(t, p, func(s *setup) { s.ws.Origins.Allowed = []string{"https://app.example"} })
	g.wantRefused(http.Header{"Origin": {"https://evil.example"}, "Authorization": {"Bearer ada"}}, http.StatusForbidden)
	g.WantMetrics(map[string]float64{"upgrade_refused_total{origin}": 1})
}

// A page of evil.example whose name has come to lead to this host is of the host that
// it asks, and knows the way to a gateway that asks nobody who he is.
func TestAPageWhoseNameWasMadeToLeadHereIsRefusedWhereEverybodyMayEverything(t *testing.T) {
	p := known("ada")
	open, asks := startGateway(t), guardedGateway(t, p)
	listed := startGateway(t, func(s *setup) { s.ws.Origins.Allowed = []string{"http://evil.example:8080"} })
	for _, c := range []struct {
		g      *gateway
		origin string
		status int
	}{
		{open, "http://evil.example:8080", http.StatusForbidden},
		{open, "http://localhost.evil.example:8080", http.StatusForbidden},
		{open, "http://127.0.0.1.evil.example:8080", http.StatusForbidden},
		{open, "http://127.0.0.1:8080", http.StatusSwitchingProtocols},
		{open, "http://[::1]:8080", http.StatusSwitchingProtocols},
		{open, "http://LOCALHOST:8080", http.StatusSwitchingProtocols},
		{open, "http://app.localhost:8080", http.StatusSwitchingProtocols},
		{asks, "http://evil.example:8080", http.StatusSwitchingProtocols}, // it has no credential to bring
		{listed, "http://evil.example:8080", http.StatusSwitchingProtocols},
	} {
		h := http.Header{"Origin": {c.origin}, "Host": {strings.TrimPrefix(c.origin, "http://")}, "Authorization": {"Bearer ada"}}
		if response, _ := c.g.knock(h); response.StatusCode != c.status {
			t.Errorf("%s: got %v, want %d", c.origin, response, c.status)
		}
	}
}
