package ws

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/access"
)

// people is an access.Authenticator whose credentials are names, and whose rights a
// test may change at any time.
type people struct {
	mu     sync.Mutex
	rights map[string]map[string]access.Right // by name and by signer, or "*"
	ended  map[string]error                   // by name
	refuse error                              // what everybody is told; nil: who is known comes in
}

func newPeople() *people {
	return &people{rights: map[string]map[string]access.Right{}, ended: map[string]error{}}
}

const everyRight = access.RightAllocate | access.RightMark | access.RightMarkAny | access.RightRead | access.RightSubscribe | access.RightAdmin | access.RightRepair

// grant gives a name rights on a signer, in place of those it had there.
func (p *people) grant(name, signer string, rights access.Right) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := maps.Clone(p.rights[name])
	if on == nil {
		on = map[string]access.Right{}
	}
	on[signer] = rights
	p.rights[name] = on
}

// end makes the sessions of a name end.
func (p *people) end(name string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[name] = why
}

func (p *people) Authenticate(r *http.Request) (*access.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case p.refuse != nil:
		return nil, fmt.Errorf("told so: %w", p.refuse)
	case !given:
		return nil, access.ErrMissing
	case p.rights[name] == nil:
		return nil, access.ErrInvalid
	}
	may := func(right access.Right, signer string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return (p.rights[name][signer]|p.rights[name]["*"])&right != 0
	}
	ended := func(time.Time) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.ended[name]
	}
	return access.NewSession(name, "key-of-"+name, time.Time{}, may, ended), nil
}

// guardedGateway is a gateway that lets in whom people knows, and looks at its
// sessions often.
func guardedGateway(t testing.TB, p *people, changes ...func(*setup)) *gateway {
	t.Helper()
	return startGateway(t, append([]func(*setup){func(s *setup) {
		s.ws.Auth = p
		s.ws.PingInterval = time.Second // looked at 16 times as often
	}}, changes...)...)
}

// as connects under a name.
func (g *gateway) as(name string) *client {
	g.Helper()
	return g.dialWith(http.Header{"Authorization": {"Bearer " + name}})
}

// wantRefused fails unless an upgrade is answered with the status; it returns the
// answer, whose body is what was said.
func (g *gateway) wantRefused(h http.Header, status int) (*http.Response, string) {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/ws", h)
	if err == nil {
		conn.Close()
		g.Fatal("let in")
	}
	if response == nil || response.StatusCode != status {
		g.Fatalf("got %v and %v, want %d", response, err, status)
	}
	body := make([]byte, 1024) // gorilla keeps so much
	n, _ := response.Body.Read(body)
	return response, strings.TrimSpace(string(body[:n]))
}

// closedWith reads until the close frame.
func (c *client) closedWith() (code int, text string) {
	c.Helper()
	for {
		err := c.read()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code, ce.Text
		}
		if err != nil {
			c.Fatalf("no close frame: %v", err)
		}
	}
}

func signersOf(events []map[string]any) []string {
	var signers []string
	for _, e := range events {
		result := e["params"].(map[string]any)["result"].(map[string]any)
		signers = append(signers, result["signer"].(string))
	}
	return slices.Compact(signers)
}
