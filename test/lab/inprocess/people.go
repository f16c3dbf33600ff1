package inprocess

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"noncegate/internal/access"
)

// EveryRight is all of them.
const EveryRight = access.RightAllocate | access.RightMark | access.RightMarkAny | access.RightRead | access.RightSubscribe | access.RightAdmin | access.RightRepair |
	access.RightChain

// People is an access.Authenticator whose credentials are names, and whose rights a test may change at any time.
type People struct {
	mu     sync.Mutex                         // guards what follows
	rights map[string]map[string]access.Right // by name and by signer, or "*"
	quotas map[string]access.Quota            // by name
	ended  map[string]error                   // by name
	refuse error                              // what everybody is told; nil: who is known comes in
}

// Grant gives a name rights on a signer, or on all ("*"), instead of those it had there.
func (p *People) Grant(name, signer string, rights access.Right) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := maps.Clone(p.rights[name])
	if on == nil {
		on = map[string]access.Right{}
	}
	on[signer] = rights
	if p.rights == nil {
		p.rights = map[string]map[string]access.Right{}
	}
	p.rights[name] = on
}

// Limit gives a name a quota.
func (p *People) Limit(name string, q access.Quota) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quotas == nil {
		p.quotas = map[string]access.Quota{}
	}
	p.quotas[name] = q
}

// End makes the sessions of a name end.
func (p *People) End(name string, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string]error{}
	}
	p.ended[name] = why
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
	limit := func() access.Quota {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.quotas[name]
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
