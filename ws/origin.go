package ws

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Origins says which pages may connect. A browser says in each upgrade which page
// asks for it; a program says nothing, or whatever it likes, so this keeps out pages
// and no program.
type Origins struct {
	// Allowed are the origins of pages that may connect, such as
	// https://app.example: scheme, host and a port that is not the scheme's own, in
	// lower case. None: those of the host that is asked.
	Allowed []string
	// Addresses are asked for of a page that is not Allowed by name, over plain HTTP:
	// the host it asks must be an address or localhost. The owner of a domain can have
	// its name lead to the visitor's own host, and its pages then are of the host that
	// they ask. It is for gateways without authentication.
	Addresses bool
	// RefuseMissing refuses upgrades without an Origin too.
	RefuseMissing bool
}

// originKey is the key of a context whose request's origin was looked at.
type originKey struct{}

// OriginChecked is the context of a request whose origin its server has checked: the private side has other pages than
// clients have.
func OriginChecked(ctx context.Context) context.Context {
	return context.WithValue(ctx, originKey{}, true)
}

// Allow reports whether the origin of a request may connect.
func (o *Origins) Allow(r *http.Request) bool {
	given := r.Header["Origin"]
	switch {
	case len(given) == 0:
		return !o.RefuseMissing
	case len(given) > 1:
		return false
	case len(o.Allowed) > 0:
		return slices.Contains(o.Allowed, given[0])
	}
	page, err := url.Parse(given[0])
	if err != nil || !strings.EqualFold(page.Host, r.Host) {
		return false
	}
	return !o.Addresses || r.TLS != nil || fixedHost(page.Hostname())
}

// fixedHost reports whether nobody can have the host lead elsewhere.
func fixedHost(host string) bool {
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
}
