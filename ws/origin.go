package ws

import (
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
	// RefuseMissing refuses upgrades without an Origin too.
	RefuseMissing bool
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
	return err == nil && strings.EqualFold(page.Host, r.Host)
}
