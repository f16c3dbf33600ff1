package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// BenchmarkApply flushes what 500 signers did in a moment, merged: four new nonces
// each, of which two are used already, and two of the last time are used. The unit
// that matters is ns/row.
func BenchmarkApply(b *testing.B) {
	url := server.NewDatabase(b)
	s := openStore(b, url)
	if _, err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	const signers, rows = 500, 6
	names := make([]string, signers)
	for i := range names {
		names[i] = fmt.Sprintf("eip155:1:0x%040x", i)
	}
	snaps := entered(b, s, 2, names...)
	events := make([]nonce.FlushEvent, signers)
	for b.Loop() {
		for i := range events {
			t := &snaps[i]
			e := nonce.FlushEvent{ID: t.ID, Signer: t.Signer, Token: t.Lease.Token, From: t.Version, To: t.Version + 4, At: t.Now, Next: t.Next + 4, Held: 2}
			for n := t.Next - 2; n < t.Next+4; n++ {
				r := nonce.FlushRow{Nonce: n, Fresh: n >= t.Next, Status: nonce.Consumed, Attempt: 1, Token: e.Token, TxHash: nonce.TxHash{1}}
				if n >= t.Next+2 {
					r.Status, r.TxHash, r.HeldUntil = nonce.Held, nonce.TxHash{}, t.Now.Add(time.Hour)
				}
				e.Rows = append(e.Rows, r)
			}
			events[i] = e
			t.Version, t.Next = e.To, e.Next
		}
		verdicts, err := s.Apply(b.Context(), time.Hour, events)
		if err != nil {
			b.Fatal(err)
		}
		for i, v := range verdicts {
			if v != nonce.FlushApplied {
				b.Fatalf("event %d got verdict %d", i, v)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*signers*rows), "ns/row")
}

// BenchmarkReserve reserves a block for each of 500 signers at a time.
func BenchmarkReserve(b *testing.B) {
	url := server.NewDatabase(b)
	s := openStore(b, url)
	if _, err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	const signers = 500
	names := make([]string, signers)
	for i := range names {
		names[i] = fmt.Sprintf("eip155:1:0x%040x", i)
	}
	terms := make([]nonce.ReserveTerm, signers)
	for i, snap := range entered(b, s, 1, names...) {
		terms[i] = nonce.ReserveTerm{ID: snap.ID, Token: snap.Lease.Token, Ceiling: 100}
	}
	h := lease.Holder{Node: "alice", Incarnation: 1}
	for b.Loop() {
		for i := range terms {
			terms[i].Ceiling += 100
		}
		if _, _, err := s.Reserve(b.Context(), h, time.Hour, time.Minute, time.Minute, terms); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*signers), "ns/signer")
}
