package access

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestTheTableOfAddressesIsBounded(t *testing.T) {
	f := newFailures()
	now := time.Unix(0, 0)
	addr := func(n int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
	}
	for range failureBurst {
		f.take(addr(0), now)
		f.done(addr(0), true)
	}
	for n := range failureAddresses - 1 {
		f.take(addr(n+1), now)
	}
	if f.take(addr(0), now) != tooWrong {
		t.Error("a full table forgot who is wrong")
	}
	for n := range 10 { // those that were seen least recently go
		f.take(addr(failureAddresses+n), now)
	}
	if f.byAddr.Len() != failureAddresses || f.byAddr.Contains(addr(1)) || !f.byAddr.Contains(addr(0)) {
		t.Errorf("the table has %d addresses", f.byAddr.Len())
	}
}

func TestAnAddressMayBeWrongAgainAfterAWhile(t *testing.T) {
	f := newFailures()
	now, addr := time.Unix(0, 0), netip.Prefix{}
	times := func() (n int) {
		for f.take(addr, now) == lookAt {
			f.done(addr, true)
			n++
		}
		return n
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, failureBurst}, {failureRefill - 1, 0}, {1, 1}, {10 * failureRefill, 10}, {time.Hour, failureBurst}} {
		now = now.Add(c.after)
		if got := times(); got != c.want {
			t.Errorf("%v later it may be wrong %d times, want %d", c.after, got, c.want)
		}
	}
	f.done(netip.MustParsePrefix("192.0.2.1/32"), true) // nobody took it
}

// What is right costs an address nothing, however much of it comes at the same time;
// and of what is wrong no more is looked at at the same time than counts afterwards.
func TestCredentialsThatAreLookedAtAtTheSameTimeAreBounded(t *testing.T) {
	f := newFailures()
	now, addr := time.Unix(0, 0), netip.Prefix{}
	take := func() {
		t.Helper()
		for n := range lookedAt {
			if got := f.take(addr, now); got != lookAt {
				t.Fatalf("number %d at the same time: %v", n+1, got)
			}
		}
		if got := f.take(addr, now); got != tooBusy {
			t.Fatalf("one more: %v", got)
		}
	}
	done := func(wrong bool) {
		for range lookedAt {
			f.done(addr, wrong)
		}
	}
	take()
	done(false)
	take()
	done(true)
	now = now.Add((lookedAt - failureBurst + 1) * failureRefill)
	if got := f.take(addr, now.Add(-1)); got != tooWrong {
		t.Errorf("before all that was wrong is paid for: %v", got)
	}
	if got := f.take(addr, now); got != lookAt {
		t.Errorf("afterwards: %v", got)
	}
}

// FuzzAuthorization looks for headers that panic, or that yield what is not one word.
func FuzzAuthorization(f *testing.F) {
	for _, header := range []string{
		"Bearer x", "bearer  x ", "Bearer", "Basic x", "Bearer x y", "", strings.Repeat("Bearer ", 2000),
		"Basic YTpi", "basic  YTpiOmM= ", "Basic OmI=", "Basic YWI=", "Basic YTo=", "Basic YTpiIGM=", "Basic //86", "Basic =", "Digest x",
	} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		text, keyOnly, err := credentialOf(header)
		if err != nil {
			if text != "" {
				t.Errorf("a credential beside the error: %q", text)
			}
			return
		}
		if text == "" || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
			t.Errorf("%q yielded %q", header, text)
		}
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		if _, word, basic := r.BasicAuth(); basic && (word != text || !keyOnly) {
			t.Errorf("%q yielded %q, net/http says %q", header, text, word)
		}
		if !keyOnly && !strings.HasSuffix(strings.TrimRight(header, " "), text) {
			t.Errorf("%q yielded %q", header, text)
		}
	})
}

// FuzzCredential looks for requests that panic on their way to a check.
func FuzzCredential(f *testing.F) {
	for _, query := range []string{"", "ticket=x", "ticket", "%zz&ticket=", "a=ticket"} {
		f.Add("Bearer x", query)
		f.Add("", query)
	}
	g := &Gate{}
	f.Fuzz(func(t *testing.T, header, query string) {
		r := &http.Request{Header: http.Header{}, URL: &url.URL{RawQuery: query}}
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		if check := g.credential(r); header != "" && check == nil {
			t.Errorf("the header %q was passed over", header)
		}
	})
}
