package admin

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
	"noncegate/test/lab/expect"
)

// figuresStore is a store that has only these figures, in the order of the names.
type figuresStore struct {
	nonce.Store
	signers []nonce.SignerFigures
}

func (s *figuresStore) Signers(_ context.Context, q nonce.SignersQuery) (out []nonce.SignerFigures, err error) {
	wants := map[nonce.SignerFilter]func(f *nonce.SignerFigures) bool{
		nonce.TroubledSigners: func(f *nonce.SignerFigures) bool { return f.Watch.Kind.Trouble() },
		nonce.GapSigners:      func(f *nonce.SignerFigures) bool { return f.Watch.Kind == 0 && f.Released > 0 },
		nonce.UnknownSigners:  func(f *nonce.SignerFigures) bool { return f.Unknown > 0 },
	}[q.Filter]
	for i := range s.signers {
		if f := &s.signers[i]; f.Signer > q.After && wants(f) && len(out) < q.Limit {
			out = append(out, *f)
		}
	}
	return out, nil
}

// With a prefix only names with it are listed, in both parts of a list of gaps, whatever stands before and behind them.
func TestAListByAPrefixHasAllNamesWithItAndNoOther(t *testing.T) {
	gap := nonce.Watch{Kind: nonce.WatchGap}
	a := New(Config{Service: new(service.Service), Store: &figuresStore{signers: []nonce.SignerFigures{
		{Signer: "a"}, {Signer: "eip155:10:0xab", Watch: gap}, {Signer: "eip155:1:0x00", Released: 1}, {Signer: "eip155:1:0xab", Watch: gap}, {Signer: "eip155:1:0xac", Released: 1},
		{Signer: "eip155:1:0xad", Watch: gap}, {Signer: "z", Released: 1},
	}}})
	for prefix, want := range map[string]string{
		"eip155:1:": "eip155:1:0xab eip155:1:0xad eip155:1:0x00 eip155:1:0xac", "eip155:1:0xA": "eip155:1:0xab eip155:1:0xad eip155:1:0xac",
		"eip155:10": "eip155:10:0xab", "z": "z", "!": "", "zz": "", "eip155:1:0xab": "eip155:1:0xab",
	} {
		page, err := a.listSigners(t.Context(), SignersQuestion{Filter: filterGap, Prefix: prefix})
		expect.Must(t, err)
		var got []string
		for _, s := range page.Signers {
			got = append(got, s.Signer)
		}
		if strings.Join(got, " ") != want || page.Next != "" {
			t.Errorf("%q: %q, more behind %q", prefix, got, page.Next)
		}
	}
	for _, prefix := range []string{"a b", strings.Repeat("x", 129)} {
		if _, err := a.listSigners(t.Context(), SignersQuestion{Prefix: prefix}); err == nil || !strings.HasPrefix(err.Error(), "prefix: must be") {
			t.Errorf("%.20q: %v", prefix, err)
		}
	}
}

// A list of gaps has two parts, each in the order of the names. Whatever the size of a page is, and
// wherever it ends, each signer is listed once.
func TestPagesOfGapsGoOnFromTheFirstPartToTheSecond(t *testing.T) {
	troubled := nonce.Watch{Kind: nonce.WatchGap}
	for name, c := range map[string]struct {
		signers []nonce.SignerFigures
		want    []string
	}{
		"both parts": {[]nonce.SignerFigures{
			{Signer: "a", Released: 1}, {Signer: "b", Watch: troubled}, {Signer: "c", Released: 1}, {Signer: "d", Watch: troubled}, {Signer: "e"}, {Signer: "f", Released: 1},
		}, []string{"b", "d", "a", "c", "f"}},
		"the first part": {[]nonce.SignerFigures{{Signer: "b", Watch: troubled}, {Signer: "d", Watch: troubled}}, []string{"b", "d"}},
		"the second":     {[]nonce.SignerFigures{{Signer: "a", Released: 1}, {Signer: "c", Released: 1}}, []string{"a", "c"}},
		"none":           {[]nonce.SignerFigures{{Signer: "e"}}, nil},
	} {
		a := New(Config{Store: &figuresStore{signers: c.signers}, Service: new(service.Service)})
		for limit := 1; limit <= len(c.want)+1; limit++ {
			var got []string
			q := SignersQuestion{Filter: filterGap, Limit: strconv.Itoa(limit)}
			for pages := 1; ; pages++ {
				page, err := a.listSigners(t.Context(), q)
				expect.Must(t, err)
				for _, s := range page.Signers {
					got = append(got, s.Signer)
				}
				if page.Next == "" {
					break
				}
				if len(page.Signers) != limit || pages > len(c.want) {
					t.Fatalf("%s, %+v: %+v", name, q, page)
				}
				q.After, q.Others = page.Next, map[bool]string{true: "true"}[page.Others]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, pages of %d: %v, want %v", name, limit, got, c.want)
			}
		}
	}
}

// A signer is named once each look of an hour has found it with unknown holds, whatever their deadlines are by then; the
// others are counted in one finding.
func TestUnknownHoldsAreNamedByHowLongThisNodeHasSeenThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer := func(name string) nonce.SignerFigures {
			return nonce.SignerFigures{Signer: name, Unknown: 2, OldestHold: time.Now().Add(30 * time.Second)} // decided about soon, as ever
		}
		store := &figuresStore{}
		a := New(Config{Service: new(service.Service), Store: store})
		for _, look := range []struct {
			after   time.Duration
			signers []string
			want    string
		}{
			{0, nil, ""},
			{time.Hour, []string{"a", "b"}, "unknown-holds: 4, of 2 signers"},
			{59 * time.Minute, []string{"a"}, "unknown-holds: 2, of 1 signers"},
			{time.Minute, []string{"a", "b"}, "unknown-a: a has 2 unknown holds, unknown-holds: 2, of 1 signers"}, // b had none between
			{time.Hour, []string{"a", "b"}, "unknown-a: a has 2 unknown holds, unknown-b: b has 2 unknown holds"},
		} {
			time.Sleep(look.after)
			store.signers = nil
			for _, name := range look.signers {
				store.signers = append(store.signers, signer(name))
			}
			var got []string
			for _, f := range a.ofSigners(t.Context()) {
				what, _, _ := strings.Cut(f.What[strings.LastIndex(f.What, ": ")+1:], ", which")
				got = append(got, f.ID+": "+strings.TrimSpace(what))
			}
			if strings.Join(got, ", ") != look.want {
				t.Errorf("after %v with %q: %q, want %q", look.after, look.signers, got, look.want)
			}
		}
	})
}
