package access_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/ticket"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

func fromExample(r *http.Request) bool { return r.Header.Get("Origin") == "https://app.example" }

// post asks the TicketHandler.
func (w *world) post(t *testing.T, method, authorization, origin string) (*httptest.ResponseRecorder, map[string]string) {
	t.Helper()
	r := request()
	r.Method = method
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	rec := httptest.NewRecorder()
	w.TicketHandler().ServeHTTP(rec, r)
	body := map[string]string{}
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
			t.Fatalf("%q: %v", rec.Body, err)
		}
	}
	return rec, body
}

func withTicket(ticket string) *http.Request {
	r := request()
	r.URL.RawQuery = "x=1&ticket=" + ticket
	return r
}

func TestATicketOpensOneSessionOfItsKey(t *testing.T) {
	w := newWorld(t, func(c *access.Config) { c.AllowOrigin = fromExample })
	text, k := w.key(t, "alice", 0)
	rec, body := w.post(t, http.MethodPost, "Bearer "+text, "https://app.example")
	expires, err := time.Parse(time.RFC3339, body["expiresAt"])
	if rec.Code != http.StatusOK || err != nil || time.Until(expires) > 30*time.Second || time.Until(expires) < 20*time.Second {
		t.Fatalf("got %d, %v", rec.Code, body)
	}
	if h := rec.Header(); h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != "https://app.example" || h.Get("Vary") != "Origin" {
		t.Errorf("got headers %v", h)
	}
	more, answer := withTicket(body["ticket"]), httptest.NewRecorder()
	more.Method = http.MethodPost
	if w.TicketHandler().ServeHTTP(answer, more); answer.Code != http.StatusUnauthorized {
		t.Errorf("a ticket gets another: %d, %s", answer.Code, answer.Body)
	}
	s, err := w.Authenticate(withTicket(body["ticket"]))
	if err != nil || s.Principal != "alice" || s.Credential != "key:"+k.ID || !s.May(access.RightAllocate, "a") {
		t.Fatalf("got %+v, %v", s, err)
	}
	_, err = w.Authenticate(withTicket(body["ticket"]))
	wantRefused(t, err, access.LoginUnknown, access.ErrInvalid)

	_, unused := w.post(t, http.MethodPost, "Bearer "+text, "")
	if _, err := w.store.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the session ends with the key", func() bool { return errors.Is(s.Ended(time.Now()), access.ErrRevoked) })
	_, err = w.Authenticate(withTicket(unused["ticket"]))
	wantRefused(t, err, access.LoginRevoked, access.ErrRevoked)
}

func TestWhatIsNoTicketIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	for query, reason := range map[string]access.LoginRefusal{
		"ticket=":                             access.LoginMalformed,
		"ticket=x":                            access.LoginMalformed,
		"ticket=" + strings.Repeat("0", 9000): access.LoginMalformed,
		"ticket=nct_" + strings.Repeat("0", 64) + "&ticket=nct_" + strings.Repeat("0", 64): access.LoginMalformed,
		"ticket=nct_" + strings.Repeat("0", 64) + "&%":                                     access.LoginMalformed,
		"ticket=nct_" + strings.Repeat("F", 64):                                            access.LoginMalformed,
		"ticket=nct_" + strings.Repeat("0", 64):                                            access.LoginUnknown,
		"%74icket=nct_" + strings.Repeat("0", 64):                                          access.LoginMissing,
		"tickets=1": access.LoginMissing,
	} {
		r := request()
		r.URL.RawQuery = query
		_, err := w.Authenticate(r)
		kind := access.ErrInvalid
		if reason == access.LoginMissing {
			kind = access.ErrMissing
		}
		wantRefused(t, err, reason, kind)
	}
}

func TestTheTicketHandlerRefuses(t *testing.T) {
	w := newWorld(t, func(c *access.Config) {
		c.AllowOrigin = fromExample
		c.Tickets = ticket.Config{PerPrincipal: 1}
	})
	text, _ := w.key(t, "alice", 0)
	used, _ := w.key(t, "bob", 0)
	if rec, body := w.post(t, http.MethodPost, "Bearer "+used, ""); rec.Code != http.StatusOK {
		t.Fatal(rec.Code, body)
	}
	for _, c := range []struct {
		name, method, authorization, origin string
		status                              int
		header, value, said                 string
	}{
		{"no credential", http.MethodPost, "", "", 401, "WWW-Authenticate", `Bearer realm="noncegate"`, "no credential was given"},
		{"wrong credential", http.MethodPost, "Bearer nck_x", "", 401, "WWW-Authenticate", `Bearer realm="noncegate"`, "the credential is not valid"},
		{"another origin", http.MethodPost, "Bearer " + text, "https://evil.example", 403, "Access-Control-Allow-Origin", "", "pages of this origin"},
		{"asked first by another origin", http.MethodOptions, "", "https://evil.example", 403, "Access-Control-Allow-Origin", "", "pages of this origin"},
		{"asked first", http.MethodOptions, "", "https://app.example", 204, "Access-Control-Allow-Headers", "Authorization", ""},
		{"read", http.MethodGet, "Bearer " + text, "", 405, "Allow", "POST, OPTIONS", "POST asks for a ticket"},
		{"too many", http.MethodPost, "Bearer " + used, "", 429, "Retry-After", "30", "too many unused tickets"},
	} {
		rec, body := w.post(t, c.method, c.authorization, c.origin)
		if rec.Code != c.status || rec.Header().Get(c.header) != c.value || !strings.Contains(body["error"], c.said) || body["ticket"] != "" {
			t.Errorf("%s: got %d %v %v", c.name, rec.Code, rec.Header(), body)
		}
	}
}

func TestEachTicketThatIsIssuedOrRefusedIsAudited(t *testing.T) {
	var out strings.Builder
	log, err := audit.New(slog.NewTextHandler(&out, nil), audit.Config{Level: audit.Refusals, Queue: 10, LoginsRefused: 10, CallsRefused: 10})
	expect.Must(t, err)
	w := newWorld(t, func(c *access.Config) {
		c.Audit, c.Tickets = log, ticket.Config{PerPrincipal: 1}
	})
	text, k := w.key(t, "alice", 0)
	for _, authorization := range []string{"Bearer " + text, "Bearer " + text, "", "Bearer nck_x"} {
		w.post(t, http.MethodPost, authorization, "")
	}
	expect.Must(t, log.Stop(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{
		"msg=ticket_issued component=audit principal=alice credential=key:" + k.ID + " remote=10.",
		"msg=ticket_refused component=audit principal=alice credential=key:" + k.ID + " remote=10.",
		"msg=ticket_refused component=audit remote=10.",
		"msg=ticket_refused component=audit remote=10.",
	} {
		if len(lines) != 4 || !strings.Contains(lines[i], want) {
			t.Fatalf("line %d of\n%s\nwant %s", i+1, out.String(), want)
		}
	}
	if strings.Contains(out.String(), text) || strings.Contains(out.String(), "nct_") {
		t.Errorf("a secret is in\n%s", out.String())
	}
}
