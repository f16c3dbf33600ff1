package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// written are rules about more than a conversation shows.
var written = []rule{
	{"a commit of a thousand signers answers each", func(f *fixture) {
		var writes []nonce.Write
		var want []nonce.WriteResult
		terms := []lease.ShardTerm{f.take(f.alice, 0), f.take(f.alice, 1)}
		for i := range 1000 {
			w := f.first(terms[i%2], f.named(i%2, i/2))
			want = append(want, nonce.Applied)
			if i%10 == 0 {
				w.Signer.Version, want[i] = 7, nonce.Moved
			}
			writes = append(writes, w)
		}
		f.results(f.alice, writes, want...)
		totals, err := f.Totals(f.Context())
		if f.ok(err); totals != (nonce.Totals{Held: 900}) {
			f.Errorf("got %+v", totals)
		}
	}},
	{"an error of a locked plan is returned, and nothing happened", func(f *fixture) {
		name, no := f.named(0, 0), errors.New("no")
		_, err := f.Locked(f.Context(), nonce.SignerNeed{Signer: name}, func(nonce.Loaded) (nonce.Write, error) { return nonce.Write{}, no })
		if !errors.Is(err, no) || f.read(name).Signer.Version != 0 {
			f.Errorf("got %v and %+v", err, f.read(name))
		}
	}},
	{"a listed nonce has all that is known of it", func(f *fixture) {
		name := f.named(0, 0)
		w := f.first(f.take(f.alice, 0), name)
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
	{"names of principals are remembered once, and found by those that have one", func(f *fixture) {
		ask := []nonce.Principal{nonce.PrincipalOf("payouts"), nonce.PrincipalOf("é \"'\\"), nonce.PrincipalOf("nobody"), 0}
		named := func(want ...string) {
			f.Helper()
			got, err := f.NamesOf(f.Context(), ask)
			f.ok(err)
			for _, name := range want {
				if got[nonce.PrincipalOf(name)] != name {
					f.Errorf("%q is called %q", name, got[nonce.PrincipalOf(name)])
				}
			}
			if len(got) != len(want) {
				f.Errorf("got %q", got)
			}
		}
		named()
		f.ok(f.RememberNames(f.Context(), nil))
		f.ok(f.RememberNames(f.Context(), []string{"payouts", "", "payouts"}))
		named("payouts")
		many := []string{"payouts", "é \"'\\"}
		for i := range 500 {
			many = append(many, fmt.Sprint("principal ", i))
		}
		for range 2 {
			f.ok(f.RememberNames(f.Context(), many))
		}
		named("payouts", "é \"'\\")
	}},
	{"a store answers, and has a name", func(f *fixture) {
		f.ok(f.Ping(f.Context()))
		if f.Name() == "" {
			f.Error("it has none")
		}
	}},
}
