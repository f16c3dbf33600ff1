// Package rights decides what a principal may do, from a file that is read again when
// it changes.
//
// The file is YAML. A principal that is not in it cannot connect, and a principal has
// only the rights written there:
//
//	principals:
//	  relayer-1:
//	    - rights: [allocate, mark, read, chain]
//	      signers: ["eip155:1:*"]
//	    - rights: [subscribe]
//	      signers: ["*"]
//	  auditor:
//	    - {rights: [read], signers: ["*"]}
//	quotas:
//	  relayer-1: {requestsPerSecond: 500, burst: 1000, connections: 20}
//	defaultQuota: {requestsPerSecond: 50, connections: 5, subscriptions: 100, openHolds: 1000}
//
// A pattern is a signer, or the beginning of signers followed by *. An address in it is
// lower-cased, as it is in signers. Any error, such as an unknown key, an unknown right
// or a quota of an unknown principal, makes the whole file unusable; the error names the
// line.
//
// It promises: Rights are never changed, only replaced as a whole, and a file that cannot
// be used leaves those in force that were read before. It does not promise that all nodes
// have the same rights: each reads its own file, and State says how old what it has is.
//
// A File owns the goroutine of a reload.Value, which Stop ends and waits for. There is no
// lock: Rights may be asked by any goroutine at any time.
package rights

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Right is something a principal may do with a signer. Rights are bits.
type Right uint8

// The rights.
const (
	Allocate Right = 1 << iota
	Mark
	MarkAny
	Read
	Subscribe
	Admin
	Repair
	Chain // read through the nodes of a chain; see ChainOf
)

// names are the rights as they are written, in the order of their bits.
var names = [...]string{"allocate", "mark", "mark-any", "read", "subscribe", "admin", "repair", "chain"}

// String returns the right as it is written in the file; several with commas between.
func (r Right) String() string {
	if bits.OnesCount8(uint8(r)) == 1 && int(r) < 1<<len(names) {
		return names[bits.TrailingZeros8(uint8(r))]
	}
	var said []string
	for i, name := range names {
		if r&(1<<i) != 0 {
			said = append(said, name)
		}
	}
	return strings.Join(said, ", ")
}

// Quota is how much a principal may have. 0 is no limit.
type Quota struct {
	RequestsPerSecond float64 // on average
	Burst             int     // requests at once; at least 1 where RequestsPerSecond is
	Connections       int     // to one node
	Subscriptions     int     // to one node
	OpenHolds         int     // of one node
	NewSigners        int     // a minute, and at once, at one node
}

// Rights is a file that was read. It does not change.
type Rights struct {
	hash       string
	patterns   int
	principals map[string]*grants
}

// Hash returns the SHA-256 of the file in hexadecimal.
func (r *Rights) Hash() string { return r.hash }

// size returns how many principals and patterns the file has.
func (r *Rights) size() (principals, patterns int) { return len(r.principals), r.patterns }

// Knows reports whether a principal is in the file.
func (r *Rights) Knows(principal string) bool { return r.principals[principal] != nil }

// Principals are the names of the file, in order.
func (r *Rights) Principals() []string { return slices.Sorted(maps.Keys(r.principals)) }

// Grant is what a principal may do with the signers of a pattern.
type Grant struct {
	Signers string // a signer, or a prefix with * behind it
	Rights  Right
}

// Grants are those of a principal, in the order of the patterns. Those of a longer prefix have what its shorter ones have.
func (r *Rights) Grants(principal string) (list []Grant) {
	g := r.principals[principal]
	if g == nil {
		return nil
	}
	for signer, has := range g.exact {
		list = append(list, Grant{signer, has})
	}
	for _, p := range g.prefixes {
		list = append(list, Grant{p.text + "*", p.rights})
	}
	slices.SortFunc(list, func(a, b Grant) int { return strings.Compare(a.Signers, b.Signers) })
	return list
}

// MayAnything reports whether a principal has a right on any signer.
func (r *Rights) MayAnything(principal string) bool {
	g := r.principals[principal]
	return g != nil && len(g.exact)+len(g.prefixes) > 0
}

// May reports whether a principal has all of the rights on a signer, which is spelled
// as nonce.ParseSigner returns it. It takes no lock and no allocation.
func (r *Rights) May(principal string, want Right, signer string) bool {
	g := r.principals[principal]
	return g != nil && g.on(signer)&want == want
}

// Quota returns the quota of a principal. That of one the file does not name lets
// nothing in by having no meaning: ask Knows first.
func (r *Rights) Quota(principal string) Quota {
	if g := r.principals[principal]; g != nil {
		return g.quota
	}
	return Quota{}
}

// unlimited returns the principals that may ask or connect as often as they like, sorted.
func (r *Rights) unlimited() []string {
	var names []string
	for name, g := range r.principals {
		if g.quota.RequestsPerSecond == 0 || g.quota.Connections == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// grants is what one principal has.
type grants struct {
	quota    Quota
	exact    map[string]Right
	prefixes []prefix // sorted by text, each once
}

// prefix is a pattern that ended in *.
type prefix struct {
	text   string
	rights Right // those of shorter prefixes of text included
	parent int   // the longest other prefix that text begins with; -1: none
}

// on returns the rights on a signer: those of all patterns that fit.
//
// Every prefix of signer sorts before it or is it, and whatever sorts between such a
// prefix and signer begins with it. So the last prefix that is not beyond signer fits
// or has the longest that fits among its parents.
func (g *grants) on(signer string) Right {
	has := g.exact[signer]
	lo, hi := 0, len(g.prefixes)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if g.prefixes[mid].text <= signer {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for i := lo - 1; i >= 0; i = g.prefixes[i].parent {
		if p := &g.prefixes[i]; strings.HasPrefix(signer, p.text) {
			return has | p.rights
		}
	}
	return has
}

// build makes grants of patterns and their rights.
func build(exact, prefixes map[string]Right) *grants {
	g := &grants{exact: exact, prefixes: make([]prefix, 0, len(prefixes))}
	for text, r := range prefixes {
		g.prefixes = append(g.prefixes, prefix{text: text, rights: r, parent: -1})
	}
	slices.SortFunc(g.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	for i := range g.prefixes {
		p := &g.prefixes[i]
		for up := i - 1; up >= 0; up = g.prefixes[up].parent {
			if strings.HasPrefix(p.text, g.prefixes[up].text) {
				p.parent, p.rights = up, p.rights|g.prefixes[up].rights
				break
			}
		}
	}
	return g
}
