package main

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzParseSettings: a file is read, or refused in one line.
func FuzzParseSettings(f *testing.F) {
	for _, text := range []string{
		"store: postgres://noncegate@db1,db2/noncegate\nhold-ttl: 30s\nslow-policy: pause,drop\n", "slow-policy: [drop, kick]\nbackpressure: off\n",
		"a: &x 1\nb: *x\n", "a: 1\na: 2\n", "- a\n", "a:\n  b: 1\n", "a: 1\n---\nb: 2\n", "? [a]\n: b\n", "<<: {a: 1}\n", "a: !!null\n", "", "\xff\xfe",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		values, err := parseSettings(data)
		if err != nil && (values != nil || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("got %v and %q", values, err)
		}
		for name, v := range values {
			if v.line < 1 {
				t.Errorf("%q is in line %d", name, v.line)
			}
		}
	})
}

// FuzzAddresses: settings that are addresses are taken or refused, and a refusal of the
// store's does not show its password.
func FuzzAddresses(f *testing.F) {
	for _, value := range []string{
		"postgres://u:hidden-word@db1,db2/noncegate?sslmode=verify-full", "postgresql://u:hidden-word%zz@db", "mysql://u:hidden-word@db", "sqlite:", "sqlite:a.db",
		"127.0.0.1:8080", "[::]:0", ":x", "ws://gw:8080/ws", "wss://[::1", "https://app.example,https://b.example:8443", "https://App.example/",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		store := StoreConfig{Store: value}
		if err := store.Validate(); err != nil && strings.Contains(err.Error(), "hidden-word") {
			t.Error(err)
		}
		if webSocketURL("advertise-url", value) == nil {
			if u, err := url.Parse(value); err != nil || u.Host == "" {
				t.Errorf("%q is taken for a URL", value)
			}
		}
		if address("listen", value) == nil && !strings.Contains(value, ":") {
			t.Errorf("%q is taken for an address", value)
		}
		pages := AccessConfig{Origins: value}
		if pages.checkOrigins() == nil {
			for _, o := range pages.origins() {
				if o != strings.ToLower(o) || !strings.Contains(o, "://") {
					t.Errorf("%q is taken for an origin", o)
				}
			}
		}
	})
}
