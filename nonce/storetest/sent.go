package storetest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
)

// sentOf is a transaction of a signer.
func (f *fixture) sentOf(signer string, n int64, hash byte, raw string) nonce.Sent {
	return nonce.Sent{Signer: signer, Nonce: n, Hash: nonce.TxHash{31: hash}, Payment: [16]byte{hash}, Raw: []byte(raw)}
}

// keep keeps a transaction that is due after a minute, and fails unless it was in a state before.
func (f *fixture) keep(t nonce.Sent, want nonce.SentState) {
	f.Helper()
	was, err := f.KeepSent(f.Context(), t, 0, time.Minute)
	f.ok(err)
	if was != want {
		f.Errorf("nonce %d was %v, want %v", t.Nonce, was, want)
	}
}

// wantSent fails unless these are kept of a signer.
func (f *fixture) wantSent(signer string, from int64, want ...nonce.Sent) {
	f.Helper()
	got, err := f.SentOf(f.Context(), signer, from)
	f.ok(err)
	f.sameSent(got, want)
}

// wantDue fails unless these are due of all shards.
func (f *fixture) wantDue(limit int, want ...nonce.Sent) {
	f.Helper()
	var shards []int
	for i := range f.Shards() {
		shards = append(shards, i)
	}
	got, err := f.DueSent(f.Context(), shards, limit)
	f.ok(err)
	f.sameSent(got, want)
}

func (f *fixture) sameSent(got, want []nonce.Sent) {
	f.Helper()
	if !slices.EqualFunc(got, want, func(a, b nonce.Sent) bool {
		return a.Signer == b.Signer && a.Nonce == b.Nonce && a.Hash == b.Hash && a.Payment == b.Payment && a.State == b.State && bytes.Equal(a.Raw, b.Raw)
	}) {
		f.Errorf("kept: %+v, want %+v", got, want)
	}
}

// in is a transaction in a state, with what is raw of it there.
func in(t nonce.Sent, state nonce.SentState) nonce.Sent {
	if t.State = state; state != nonce.SentOpen {
		t.Raw = nil
	}
	return t
}

func unraw(t nonce.Sent) nonce.Sent { t.Raw = nil; return t }

var sentRules = []rule{
	{"a transaction that is kept is open until it is settled, and its raw form is kept as long", func(f *fixture) {
		name := f.named(0, 0)
		a, b, other := f.sentOf(name, 7, 1, "raw a"), f.sentOf(name, 8, 2, "raw b"), f.sentOf(f.named(1, 0), 7, 1, "raw c")
		for _, t := range []nonce.Sent{b, other, a} {
			f.keep(t, 0)
			f.db.Advance(time.Second)
		}
		f.wantSent(name, 0, unraw(in(a, nonce.SentOpen)), unraw(in(b, nonce.SentOpen)))
		f.wantSent(name, 8, unraw(in(b, nonce.SentOpen)))
		f.ok(f.SettleSent(f.Context(), name, 7, a.Hash, nonce.SentTaken, time.Minute))
		f.ok(f.SettleSent(f.Context(), name, 9, a.Hash, nonce.SentTaken, time.Minute)) // which is not there
		f.wantSent(name, 0, in(a, nonce.SentTaken), unraw(in(b, nonce.SentOpen)))
		f.db.Advance(2 * time.Minute)
		f.wantDue(9, in(b, nonce.SentOpen), in(other, nonce.SentOpen), in(a, nonce.SentTaken))
	}},
	{"a transaction that is kept again stays taken, and is open again if it was refused", func(f *fixture) {
		name := f.named(0, 0)
		a := f.sentOf(name, 7, 1, "raw")
		f.keep(a, 0)
		f.keep(a, nonce.SentOpen)
		f.ok(f.SettleSent(f.Context(), name, 7, a.Hash, nonce.SentRefused, time.Hour))
		f.wantSent(name, 0, in(a, nonce.SentRefused))
		f.keep(a, nonce.SentRefused)
		f.db.Advance(time.Minute)
		f.wantDue(9, in(a, nonce.SentOpen))
		f.ok(f.SettleSent(f.Context(), name, 7, a.Hash, nonce.SentTaken, 0))
		f.keep(a, nonce.SentTaken)
		f.wantDue(9, in(a, nonce.SentTaken))
	}},
	{"transactions are due when their time has come, the longest due first", func(f *fixture) {
		name, other := f.named(0, 0), f.named(1, 0)
		a, b, c := f.sentOf(name, 1, 1, "a"), f.sentOf(other, 1, 2, "b"), f.sentOf(name, 2, 3, "c")
		for i, t := range []nonce.Sent{c, b, a} {
			_, err := f.KeepSent(f.Context(), t, 0, time.Duration(i+1)*time.Second)
			f.ok(err)
		}
		f.wantDue(9)
		f.db.Advance(2 * time.Second)
		f.wantDue(9, in(c, nonce.SentOpen), in(b, nonce.SentOpen))
		f.wantDue(1, in(c, nonce.SentOpen))
		f.ok(f.DelaySent(f.Context(), []nonce.Sent{c, a}, 2*time.Second))
		f.wantDue(9, in(b, nonce.SentOpen))
		got, err := f.DueSent(f.Context(), []int{0}, 9)
		f.ok(err)
		f.sameSent(got, nil)
		f.db.Advance(2 * time.Second)
		got, err = f.DueSent(f.Context(), []int{0}, 9)
		f.ok(err)
		if len(got) != 2 {
			f.Errorf("%d are due, want both that were delayed", len(got))
		}
	}},
	{"used nonces are forgotten, and what is dropped is", func(f *fixture) {
		name, other := f.named(0, 0), f.named(1, 0)
		for n := range int64(5) {
			f.keep(f.sentOf(name, n, byte(n), "r"), 0)
		}
		f.keep(f.sentOf(other, 0, 9, "r"), 0)
		_, err := f.KeepSent(f.Context(), f.sentOf(name, 5, 5, "r"), 2, time.Minute)
		f.ok(err)
		f.ok(f.DropSent(f.Context(), name, 4, nonce.TxHash{31: 4}))
		f.ok(f.DropSent(f.Context(), name, 5, nonce.TxHash{31: 4})) // which is not there
		rows, size, err := f.SentTotals(f.Context())
		f.ok(err)
		if rows != 4 || size != 4 {
			f.Errorf("%d rows with %d bytes, want 2, 3 and 5 of one signer and one of the other", rows, size)
		}
		f.ok(f.ForgetSent(f.Context(), name, 5))
		f.wantSent(name, 0, unraw(in(f.sentOf(name, 5, 5, "r"), nonce.SentOpen)))
		f.wantSent(other, 0, unraw(in(f.sentOf(other, 0, 9, "r"), nonce.SentOpen)))
	}},
	{"the transactions of one signer are bounded by their bytes, and another signer's are not in the way", func(f *fixture) {
		name := f.named(0, 0)
		half := string(make([]byte, nonce.MaxSentBytes/2))
		f.keep(f.sentOf(name, 0, 1, half), 0)
		f.keep(f.sentOf(name, 1, 2, half), 0)
		_, err := f.KeepSent(f.Context(), f.sentOf(name, 2, 3, "r"), 0, time.Minute)
		if !errors.Is(err, nonce.ErrSentFull) {
			f.Errorf("one byte more: %v, want that it is full", err)
		}
		f.keep(f.sentOf(name, 1, 2, half), nonce.SentOpen) // it is kept already
		f.keep(f.sentOf(f.named(1, 0), 2, 3, "r"), 0)
		f.ok(f.SettleSent(f.Context(), name, 0, nonce.TxHash{31: 1}, nonce.SentTaken, time.Minute))
		f.keep(f.sentOf(name, 2, 3, "r"), 0)
	}},
}
