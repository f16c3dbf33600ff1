package inprocess

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"noncegate/internal/access"
)

// EveryRight is all of them.
const EveryRight = access.RightAllocate | access.RightMark | access.RightMarkAny | access.RightRead | access.RightSubscribe |
	access.RightAdmin | access.RightRepair | access.RightChain

// People is an access.Authenticator whose credentials are names, and whose rights a test may change at any time.
type People struct {
	mu     sync.Mutex // guards what follows
	known  map[string]*person
	refuse error // what everybody is told; nil: who is known comes in
}

type person struct {
	rights map[string]access.Right // by signer, or "*"
	quota  access.Quota
	ended  error
}

// Grant gives a name rights on a signer, or on all ("*"), instead of those it had there.
func (p *People) Grant(name, signer string, rights access.Right) {
	p.change(name, func(who *person) { who.rights[signer] = rights })
}

// Limit gives a name a quota.
func (p *People) Limit(name string, q access.Quota) {
	p.change(name, func(who *person) { who.quota = q })
}

// End makes the sessions of a name end.
func (p *People) End(name string, why error) {
	p.change(name, func(who *person) { who.ended = why })
}

func (p *People) change(name string, do func(*person)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]*person{}
	}
	if p.known[name] == nil {
		p.known[name] = &person{rights: map[string]access.Right{}}
	}
	do(p.known[name])
}

// Refuse makes an error the answer to everybody; nil: to nobody any more.
func (p *People) Refuse(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = why
}

// Authenticate implements access.Authenticator.
func (p *People) Authenticate(r *http.Request) (*access.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	who := p.known[name]
	switch {
	case p.refuse != nil:
		return nil, fmt.Errorf("told so: %w", p.refuse)
	case !given:
		return nil, access.ErrMissing
	case who == nil || len(who.rights) == 0:
		return nil, access.ErrInvalid
	}
	may := func(right access.Right, signer string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return (who.rights[signer]|who.rights["*"])&right != 0
	}
	ended := func(time.Time) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return who.ended
	}
	limit := func() access.Quota {
		p.mu.Lock()
		defer p.mu.Unlock()
		return who.quota
	}
	return access.NewSession(name, "key-of-"+name, time.Time{}, may, ended).WithQuota(limit), nil
}

// As are the headers of a client under a name; "": of one that shows no credential.
func As(name string) http.Header {
	if name == "" {
		return http.Header{}
	}
	return http.Header{"Authorization": {"Bearer " + name}}
}
