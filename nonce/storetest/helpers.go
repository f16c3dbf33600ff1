package storetest

import (
	"fmt"
	"slices"
	"strings"

	"noncegate/lease"
	"noncegate/nonce"
)

func (f *fixture) signers(q nonce.SignersQuery) []nonce.SignerFigures {
	f.Helper()
	page, err := f.Signers(f.Context(), q)
	f.ok(err)
	if len(page) > q.Limit {
		f.Fatalf("%+v: got %d signers", q, len(page))
	}
	return page
}

func names(page []nonce.SignerFigures) (names []string) {
	for _, s := range page {
		names = append(names, s.Signer)
	}
	return names
}

// finds fails the test unless the filter finds exactly these signers, of all and of named
// ones, at once and in pages.
func (f *fixture) finds(filter nonce.SignerFilter, want ...string) {
	f.Helper()
	slices.Sort(want)
	for _, named := range [][]string{nil, append([]string{"no such signer", want[0]}, want...), {}} {
		want := want
		if named != nil && len(named) == 0 {
			want = nil
		}
		if got := names(f.signers(nonce.SignersQuery{Filter: filter, Names: named, Limit: 1000})); !slices.Equal(got, want) {
			f.Errorf("filter %d of %q: got %q, want %q", filter, named, got, want)
		}
		var paged []string
		for q := (nonce.SignersQuery{Filter: filter, Names: named, Limit: 2}); ; q.After = paged[len(paged)-1] {
			page := names(f.signers(q))
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			if len(paged) > 100 {
				f.Fatalf("the pages do not end: %q", paged)
			}
		}
		if !slices.Equal(paged, want) {
			f.Errorf("filter %d of %q in pages: got %q, want %q", filter, named, paged, want)
		}
	}
}

// listed is a page in words: each nonce with the first letter of its state and its attempt,
// and where the next page begins.
func (f *fixture) listed(q nonce.ListQuery) string {
	f.Helper()
	page, err := f.List(f.Context(), q)
	if err != nil {
		return failed(err)
	}
	var words []string
	for _, r := range page.Rows {
		words = append(words, fmt.Sprintf("%d%.1s%d", r.Nonce, r.Status, r.Attempt))
	}
	if page.NextFrom >= 0 {
		words = append(words, fmt.Sprint("next ", page.NextFrom))
	}
	return strings.Join(words, " ")
}

// due lists the signers that are due.
func (f *fixture) due(limit int, shards ...int) (names []string) {
	f.Helper()
	got, err := f.Due(f.Context(), shards, limit)
	f.ok(err)
	for _, e := range got {
		if nonce.ShardOf(e.Signer, f.Shards()) != e.Shard || e.At > f.now().UnixMilli() {
			f.Errorf("%+v at %d", e, f.now().UnixMilli())
		}
		names = append(names, e.Signer)
	}
	return names
}

func (f *fixture) nodes() []lease.Node {
	f.Helper()
	list, _, err := f.Nodes(f.Context())
	f.ok(err)
	return list
}

// shown is what the store shows of a node, which must be there.
func (f *fixture) shown(id string) lease.Node {
	f.Helper()
	for _, n := range f.nodes() {
		if n.Node == id {
			return n
		}
	}
	f.Fatalf("node %q is not shown", id)
	return lease.Node{}
}

// watched are the signers of some shards that are watched, in words, those of one page after the
// other.
func (f *fixture) watched(limit int, shards ...int) (words []string) {
	f.Helper()
	for after := int64(0); ; {
		page, err := f.Watched(f.Context(), shards, after, limit)
		f.ok(err)
		if len(page) > limit {
			f.Fatalf("got %d signers, and %d were wanted", len(page), limit)
		}
		for _, e := range page {
			if e.ID <= after {
				f.Fatalf("entry %d comes after %d", e.ID, after)
			}
			after = e.ID
			words = append(words, strings.TrimSuffix(strings.Join(strings.Fields(fmt.Sprintln(e.Signer, e.Kind, e.Nonce, e.Since)), " "), " 0 0"))
		}
		if len(page) < limit {
			slices.Sort(words)
			return words
		}
	}
}
