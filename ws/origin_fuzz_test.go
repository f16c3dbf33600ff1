package ws

import (
	"net/http"
	"strings"
	"testing"
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
