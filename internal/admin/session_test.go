package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/access"
	"noncegate/test/lab/expect"
)

// asCredential is a caller whose credential is good until ended says otherwise.
func asCredential(name string, ended *error) caller {
	may := func(access.Right, string) bool { return true }
	return caller{session: access.NewSession("ops", name, time.Time{}, may, func(time.Time) error { return *ended })}
}

// A session lasts from use to use, and no longer than half a day; neither one credential nor all together fill more than their places.
func TestSessionsAreBoundedInTimeAndNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		p := newPasses(sessionPrefix, "sessions")
		begin := func(credential string) (text string, err error) {
			text, _, err = p.make(asCredential(credential, &ended), time.Time{}, sessionIdle)
			return text, err
		}
		used, err := begin("key:used")
		expect.Must(t, err)
		left, err := begin("key:left")
		expect.Must(t, err)
		for at := time.Duration(0); at < sessionLife; at += 14 * time.Minute {
			if by, err := p.use(used); err != nil || by.principal() != "ops" || !by.console {
				t.Fatalf("after %v: %+v, %v", at, by, err)
			}
			time.Sleep(14 * time.Minute)
		}
		for name, text := range map[string]string{"used for half a day": used, "not used": left, "none": sessionPrefix + "00"} {
			if _, err := p.use(text); err != errSessionOver {
				t.Errorf("%s: %v", name, err)
			}
		}
		kept, err := begin("key:0")
		expect.Must(t, err)
		for i := 1; ; i++ {
			if _, err := begin(fmt.Sprint("key:", i/maxPassesEach)); err == nil {
				continue
			} else if said := err.Error(); i != maxPasses || said != "this node has 1000 sessions, which is the most; try again in a minute" {
				t.Fatalf("session %d: %s", i, said)
			}
			break
		}
		p.end(kept)
		if _, err := begin("key:0"); err != nil {
			t.Error(err)
		}
		p.of = map[[32]byte]*pass{}
		for range maxPassesEach {
			_, err = begin("key:1")
			expect.Must(t, err)
		}
		if _, err := begin("key:1"); err == nil || !strings.HasPrefix(err.Error(), "this credential has 100 sessions, which is the most") {
			t.Error(err)
		}
		one, err := begin("key:2")
		expect.Must(t, err)
		ended = access.ErrRevoked
		if _, err := p.use(one); err == nil || err.Error() != "the session has ended: the credential was revoked" {
			t.Error(err)
		}
	})
}

func TestATicketWorksOnceAndForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		p := newPasses(ticketPrefix, "unused tickets")
		for name, c := range map[string]struct {
			before func(text string)
			ok     bool
		}{
			"new":       {func(string) {}, true},
			"used":      {func(text string) { _, _ = p.take(text) }, false},
			"too old":   {func(string) { time.Sleep(ticketLife) }, false},
			"of an end": {func(string) { ended = access.ErrExpired }, false},
		} {
			ended = nil
			text, _, err := p.make(asCredential("key:1", &ended), time.Time{}, ticketLife)
			expect.Must(t, err)
			if c.before(text); c.ok {
				_, err = p.take(text)
				expect.Must(t, err)
			} else if _, err = p.take(text); err == nil {
				t.Errorf("a ticket that is %s works", name)
			}
		}
	})
}

// Whoever guesses the admin key is told to wait, and counted. Whoever knows it is let in from the same address, as everybody
// behind one proxy has it.
func TestTheAdminKeyIsNotGuessed(t *testing.T) {
	var log bytes.Buffer
	a := New(Config{
		Key: "0123456789abcdef", Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Console: "on",
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	served := a.Handler()
	ask := func(key, path string) int {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		w := httptest.NewRecorder()
		served.ServeHTTP(w, r)
		return w.Code
	}
	answers := map[int]int{}
	for range 25 {
		answers[ask("0123456789abcdeX", "/metrics")]++
	}
	if answers[401] < 20 || answers[401]+answers[429] != 25 || answers[429] == 0 || a.Refused() != 25 {
		t.Errorf("%v, %v were counted", answers, a.Refused())
	}
	if code := ask("0123456789abcdef", "/metrics"); code != http.StatusOK {
		t.Errorf("the right key: %d", code)
	}
	if strings.Contains(log.String(), "0123456789") {
		t.Error(log.String())
	}
}

// The console's files need no key, and have no data; they are not there where the console is off.
func TestTheConsolesFilesNeedNoKey(t *testing.T) {
	for console, want := range map[string]int{"on": 200, "read": 200, "off": 404} {
		h := New(Config{
			Key: "0123456789abcdef", Console: console, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			Pages: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a page") }),
		}).Handler()
		for path, want := range map[string]int{"/": want, "/console.js": want, "/console.css": want, "/other": 401, "/metrics": 401, "/ws": 401} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil))
			if w.Code != want {
				t.Errorf("%s, %s: %d %s", console, path, w.Code, w.Body)
			}
		}
	}
}
