package storetest

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// RunKept runs the rules of a nonce.KeptStore. open makes an empty database of two shards.
func RunKept(t *testing.T, open func(t *testing.T) Database) {
	run(t, open, []rule{
		{"all that is kept of signers comes to another store, as it was", func(f *fixture) {
			both := []string{f.fill(), f.named(0, 1)}
			slices.Sort(both)
			kept := f.export(true)
			f.Run("the other store", func(t *testing.T) {
				to := open(t)
				other := &fixture{T: t, Store: to.Open(t), db: to}
				other.ok(other.imports(kept))
				if got := other.export(true); !reflect.DeepEqual(inWords(got), inWords(kept)) {
					t.Errorf("got  %v\nwant %v", inWords(got), inWords(kept))
				}
				to.Advance(2 * time.Hour)
				if due := other.due(9, 0, 1); !slices.Equal(due, both) {
					t.Errorf("%v are due, want %v", due, both)
				}
				if got := other.watched(9, 0, 1); len(got) != 1 {
					t.Errorf("%v are watched", got)
				}
			})
			if rows := inWords(f.export(false)); len(rows) != len(inWords(kept))-used {
				f.Errorf("without the history there are %d of %d rows", len(rows), len(inWords(kept)))
			}
		}},
		{"an import adds signers or does nothing", func(f *fixture) {
			f.fill()
			before := f.export(true)
			no := errors.New("no")
			fresh := nonce.Kept{Name: "a-new-one", Signer: &nonce.KeptSigner{Signer: nonce.Signer{Version: 1, Next: 5}}}
			known := nonce.Kept{Name: before[1].Name, Signer: &nonce.KeptSigner{Signer: nonce.Signer{Version: 1}}}
			if err := f.imports([]nonce.Kept{fresh, known}); !reflect.DeepEqual(err, error(&nonce.KnownSignerError{Name: known.Name})) {
				f.Errorf("a known signer: %v", err)
			}
			first := true
			if err := f.kept().Import(f.Context(), func() (*nonce.Kept, error) {
				if first {
					first = false
					return &fresh, nil
				}
				return nil, no
			}); !errors.Is(err, no) {
				f.Errorf("an error of the file: %v", err)
			}
			if got := f.export(true); !reflect.DeepEqual(inWords(got), inWords(before)) {
				f.Errorf("got %v", inWords(got))
			}
		}},
		{"an export says which signer cannot be read", func(f *fixture) {
			name := f.fill()
			f.db.Damage(f.T, name)
			if kept := f.export(false); kept[1].Name != name || !errors.Is(kept[1].Signer.Err, nonce.ErrLive) {
				f.Errorf("got %+v", kept[1].Signer)
			}
		}},
	})
}

func (f *fixture) kept() nonce.KeptStore { return f.Store.(nonce.KeptStore) }

// used is how many nonces of the signer of fill are CONSUMED: more than come in one part.
const used = nonce.KeptPiece + 1

// fill gives the store a signer with everything, and another one.
func (f *fixture) fill() (name string) {
	f.Helper()
	name = f.named(0, 0)
	term := f.take(f.alice, 0)
	w := f.first(term, name)
	hashes := nonce.TxHashes("").Append(nonce.TxHash{2})
	w.Signer.Next = used + 2
	w.Signer.Live = []nonce.Entry{
		f.hold(used, 2, time.Hour), {Nonce: used + 1, Attempt: 1, Status: nonce.Released},
	}
	w.Signer.Live[0].Note = &nonce.Note{Reason: nonce.ReasonRepair, TxHash: nonce.TxHash{1}, Replaced: hashes,
		Earlier: &nonce.Earlier{Attempt: 1, Reason: nonce.ReasonUnseen, TxHash: nonce.TxHash{4}}}
	w.DueAt = w.Signer.FirstDeadline()
	w.Watch = nonce.Watch{Kind: nonce.WatchGap, Nonce: used, Since: 1_790_000_000_001}
	for n := range int64(used) {
		note := nonce.Note{Reason: nonce.ReasonMined, TxHash: nonce.TxHash{3}, Replaced: hashes}
		w.History = append(w.History, nonce.Past{Nonce: n, Attempt: 3, Holder: 9, Note: note})
		w.Requests = append(w.Requests, nonce.Remembered{ID: fmt.Sprint("r", n), Hash: [16]byte{7}, Nonces: []int64{n}, Attempts: []int64{3}})
	}
	f.results(f.alice, []nonce.Write{w, f.first(term, f.named(0, 1))}, nonce.Applied, nonce.Applied)
	f.ok(f.RememberNames(f.Context(), []string{"payouts"}))
	for n := range byte(3) {
		s := nonce.Sent{Signer: name, Nonce: used, Hash: nonce.TxHash{n + 1}, Payment: [16]byte{n}, Raw: []byte{n + 1}}
		_, err := f.KeepSent(f.Context(), s, 0, time.Minute)
		f.ok(err)
	}
	f.ok(f.SettleSent(f.Context(), name, used, nonce.TxHash{1}, nonce.SentTaken, time.Hour))
	return name
}

func (f *fixture) export(history bool) (out []nonce.Kept) {
	f.Helper()
	f.ok(f.kept().Export(f.Context(), history, func(_ time.Time, part *nonce.Kept) error {
		out = append(out, *part)
		return nil
	}))
	return out
}

func (f *fixture) imports(parts []nonce.Kept) error {
	return f.kept().Import(f.Context(), func() (*nonce.Kept, error) {
		if len(parts) == 0 {
			return nil, io.EOF
		}
		part := parts[0]
		parts = parts[1:]
		return &part, nil
	})
}

// inWords are the rows of an export, without where it came from.
func inWords(parts []nonce.Kept) (rows []string) {
	for _, part := range parts {
		for key, name := range part.Names {
			rows = append(rows, fmt.Sprint(key, name))
		}
		if s := part.Signer; s != nil {
			shardless := *s
			shardless.Shard, shardless.Live = lease.Shard{}, nil
			rows = append(rows, fmt.Sprintf("%s %+v %x", part.Name, shardless, nonce.AppendLive(nil, s.Live)))
		}
		for _, p := range part.History {
			rows = append(rows, fmt.Sprintf("%s %+v %d", part.Name, p.Row(), p.At.UnixMilli()))
		}
		for _, q := range part.Requests {
			rows = append(rows, fmt.Sprintf("%s %+v %d", part.Name, q.Remembered, q.At.UnixMilli()))
		}
		for _, t := range part.Sent {
			rows = append(rows, fmt.Sprintf("%s %+v %d", part.Name, t.Sent, t.LookAt.UnixMilli()))
		}
	}
	return rows
}
