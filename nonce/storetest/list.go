package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"noncegate/nonce"
)

// listed is a page in words: each nonce with the first letter of its state and its attempt,
// and where the next page begins.
func (f *fixture) listed(q nonce.ListQuery) string {
	f.Helper()
	page, err := f.List(f.Context(), q)
	f.ok(err)
	var words []string
	for _, r := range page.Rows {
		words = append(words, fmt.Sprintf("%d%.1s%d", r.Nonce, r.Status, r.Attempt))
	}
	if page.NextFrom >= 0 {
		words = append(words, fmt.Sprint("next ", page.NextFrom))
	}
	return strings.Join(words, " ")
}

var listRules = []rule{
	{"a list has what lives and what is kept of the history, in order, by state and in pages", func(f *fixture) {
		terms, name := f.both(), f.named(0, 0)
		w := f.first(terms[0], name)
		w.Signer.Next = 9
		w.Signer.Live = []nonce.Entry{f.released(1, 1), f.hold(4, 2, time.Hour), f.noted(f.hold(5, 1, time.Hour), nonce.ReasonUnknown), f.released(8, 3)}
		w.History = []nonce.Past{{Nonce: 7, Attempt: 1}, {Nonce: 0, Attempt: 1}, {Nonce: 3, Attempt: 2}} // 2 and 6 are not kept
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		other := f.first(terms[0], f.named(0, 1))
		other.History = []nonce.Past{{Nonce: 2, Attempt: 1}}
		f.results(f.alice, []nonce.Write{other}, nonce.Applied)
		for _, c := range []struct {
			q    nonce.ListQuery
			want string
		}{
			{nonce.ListQuery{Limit: 9}, "0C1 1R1 3C2 4H2 5H1 7C1 8R3"},
			{nonce.ListQuery{Limit: 7}, "0C1 1R1 3C2 4H2 5H1 7C1 8R3"},
			{nonce.ListQuery{Limit: 6}, "0C1 1R1 3C2 4H2 5H1 7C1 next 8"},
			{nonce.ListQuery{Limit: 2}, "0C1 1R1 next 3"},
			{nonce.ListQuery{Limit: 2, From: 2}, "3C2 4H2 next 5"},
			{nonce.ListQuery{Limit: 2, From: 7}, "7C1 8R3"},
			{nonce.ListQuery{Limit: 2, From: 9}, ""},
			{nonce.ListQuery{Limit: 9, Status: nonce.Held}, "4H2 5H1"},
			{nonce.ListQuery{Limit: 1, Status: nonce.Held}, "4H2 next 5"},
			{nonce.ListQuery{Limit: 9, Status: nonce.Held, Unknown: true}, "5H1"},
			{nonce.ListQuery{Limit: 9, Status: nonce.Released, From: 2}, "8R3"},
			{nonce.ListQuery{Limit: 2, Status: nonce.Consumed}, "0C1 3C2 next 7"},
			{nonce.ListQuery{Limit: 9, Status: nonce.Consumed, From: 1}, "3C2 7C1"},
		} {
			c.q.Signer = name
			if got := f.listed(c.q); got != c.want {
				f.Errorf("%+v: got %q, want %q", c.q, got, c.want)
			}
		}
		if got := f.listed(nonce.ListQuery{Signer: "nobody", Limit: 9}); got != "" {
			f.Errorf("of nobody: %q", got)
		}
	}},
	{"a listed nonce has all that is known of it", func(f *fixture) {
		terms, name := f.both(), f.named(0, 0)
		w := f.first(terms[0], name)
		hashes := nonce.TxHashes("").Append(nonce.TxHash{2})
		unseen := &nonce.Earlier{Attempt: 1, Reason: nonce.ReasonUnseen}
		repaired := &nonce.Earlier{Attempt: 1, Reason: nonce.ReasonRepair, TxHash: nonce.TxHash{4}}
		w.Signer.Next = 3
		w.Signer.Live = []nonce.Entry{f.hold(1, 2, time.Hour), {Nonce: 2, Attempt: 1, Status: nonce.Released}}
		w.Signer.Live[0].Note = &nonce.Note{Reason: nonce.ReasonRepair, TxHash: nonce.TxHash{1}, Replaced: hashes, Earlier: repaired}
		w.Signer.Live[1].Note = &nonce.Note{Reason: nonce.ReasonUnseen, Earlier: unseen}
		w.History = []nonce.Past{{Nonce: 0, Attempt: 3, Holder: 9, Note: nonce.Note{Reason: nonce.ReasonMined, TxHash: nonce.TxHash{3}, Replaced: hashes}}}
		now := f.commit(f.alice, w).Now
		page, err := f.List(f.Context(), nonce.ListQuery{Signer: name, Limit: 9})
		f.ok(err)
		want := []nonce.Row{
			{Nonce: 0, Status: nonce.Consumed, Attempt: 3, Holder: 9, Reason: nonce.ReasonMined, TxHash: nonce.TxHash{3}, Replaced: hashes},
			{Nonce: 1, Status: nonce.Held, Attempt: 2, Holder: 7, Reason: nonce.ReasonRepair, TxHash: nonce.TxHash{1}, Replaced: hashes, Earlier: repaired,
				HeldUntil: time.UnixMilli(w.Signer.Live[0].Until)},
			{Nonce: 2, Status: nonce.Released, Attempt: 1, Reason: nonce.ReasonUnseen, Earlier: unseen},
		}
		for i, got := range page.Rows {
			if !got.UpdatedAt.Equal(now) || !got.HeldUntil.Equal(want[i].HeldUntil) {
				f.Errorf("got %+v, written at %v", got, now)
			}
			got.UpdatedAt, got.HeldUntil = want[i].UpdatedAt, want[i].HeldUntil
			if !reflect.DeepEqual(got, want[i]) {
				f.Errorf("got  %+v\nwant %+v", got, want[i])
			}
		}
		if len(page.Rows) != len(want) {
			f.Errorf("got %d rows", len(page.Rows))
		}
	}},
	{"a nonce that was consumed and lives again is listed as it lives, and once", func(f *fixture) {
		terms, name := f.both(), f.named(0, 0)
		w := f.first(terms[0], name)
		w.Signer.Next = 5
		w.Signer.Live = []nonce.Entry{f.noted(f.hold(1, 2, time.Hour), nonce.ReasonRepair), f.noted(f.hold(2, 2, time.Hour), nonce.ReasonRepair)}
		for n := range int64(5) {
			w.History = append(w.History, nonce.Past{Nonce: n, Attempt: 1})
		}
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		for q, want := range map[nonce.ListQuery]string{
			{Limit: 9}:                         "0C1 1H2 2H2 3C1 4C1",
			{Limit: 2}:                         "0C1 1H2 next 2",
			{Limit: 2, Status: nonce.Consumed}: "0C1 3C1 next 4",
			{Limit: 2, Status: nonce.Consumed, From: 2}: "3C1 4C1",
			{Limit: 9, Status: nonce.Held}:              "1H2 2H2",
		} {
			q.Signer = name
			if got := f.listed(q); got != want {
				f.Errorf("%+v: got %q, want %q", q, got, want)
			}
		}
	}},
	{"a listed nonce names the request that was answered with it, while that is remembered", func(f *fixture) {
		terms, name := f.both(), f.named(0, 0)
		w := f.first(terms[0], name)
		w.Signer.Next = 4
		w.Signer.Live = []nonce.Entry{f.hold(0, 1, time.Hour), f.hold(1, 2, time.Hour)}
		w.History = []nonce.Past{{Nonce: 2, Attempt: 1}, {Nonce: 3, Attempt: 1}}
		w.Requests = []nonce.Request{{ID: "a", Nonces: []int64{0, 2}, Attempts: []int64{1, 1}}, {ID: "b", Nonces: []int64{1}, Attempts: []int64{1}}}
		other := f.first(terms[0], f.named(0, 1))
		other.Requests = []nonce.Request{{ID: "c", Nonces: []int64{3}, Attempts: []int64{1}}}
		f.results(f.alice, []nonce.Write{w, other}, nonce.Applied, nonce.Applied)
		ids := func() (ids []string) {
			page, err := f.List(f.Context(), nonce.ListQuery{Signer: name, Limit: 9})
			f.ok(err)
			for _, r := range page.Rows {
				ids = append(ids, r.RequestID)
			}
			return ids
		}
		if got := ids(); !slices.Equal(got, []string{"a", "", "a", ""}) { // nonce 1 has another holder by now
			f.Errorf("got %q", got)
		}
		f.db.Advance(time.Hour)
		later := f.after(terms[0], name)
		later.Requests = []nonce.Request{{ID: "d"}}
		f.results(f.alice, []nonce.Write{later}, nonce.Applied)
		for want := range 4 {
			n, err := f.PruneRequests(f.Context(), time.Minute, 2)
			if f.ok(err); n != max(0, 2-want) && want != 1 || want == 1 && n != 1 {
				f.Errorf("call %d deleted %d", want, n)
			}
		}
		if got := ids(); !slices.Equal(got, []string{"", "", "", "", ""}) {
			f.Errorf("got %q", got)
		}
		if got := f.load(nonce.SignerNeed{Signer: name, Requests: []string{"a", "d"}})[0].Requests; got["a"] != nil || got["d"] == nil {
			f.Errorf("left are %+v", got)
		}
	}},
}
