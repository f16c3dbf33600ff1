package client

import (
	"strings"
	"testing"
)

// FuzzURL: what a gateway names as the owner's URL is made into an address that is the
// same when it is read again; what a person writes is, too, but for its user, which is
// in no address; and an error does not show a password.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"ws://gateway-1.internal:8080/ws", "http://127.0.0.1:8080", "https://[::1]/", "wss://user:hidden-word@host/ws", "ftp://user:hidden-word@host", "ws://", "%", "ws://localhost:1/a?b#c",
		"ws://user:hidden-word@host:x", "ws://user:hidden-word%zz@host", "wss://hidden-word@host", "ws://a%2Fb:hidden-word@host/c%2Fd#%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		hides := func(err error) {
			if before, _, ok := strings.Cut(raw, "@"); ok && err != nil && strings.Contains(before, "hidden-word") && strings.Contains(err.Error(), "hidden-word") {
				t.Errorf("%q: the error shows the password: %v", raw, err)
			}
		}
		got, err := ownerURL(raw)
		hides(err)
		cfg, mine := Config{}.complete(raw)
		hides(mine)
		if err != nil {
			return
		}
		if again, err := ownerURL(got); err != nil || again != got || !strings.HasPrefix(got, "ws") {
			t.Errorf("%q became %q, and that %q, %v", raw, got, again, err)
		}
		if mine != nil || cfg.URLs[0] != got || cfg.Header != nil {
			t.Errorf("%q is dialled as %q, %v, %v", raw, cfg.URLs, cfg.Header, mine)
		}
	})
}
