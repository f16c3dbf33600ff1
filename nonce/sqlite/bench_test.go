package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// BenchmarkCommit hands out nonces as a busy worker does: one row to each of 500
// signers out of 1,000, or 500 rows to one signer, in every commit.
func BenchmarkCommit(b *testing.B) {
	b.Run("500 of 1000 signers", func(b *testing.B) { benchmarkCommit(b, 1000, 500, 1) })
	b.Run("one hot signer", func(b *testing.B) { benchmarkCommit(b, 1, 1, 500) })
}

func benchmarkCommit(b *testing.B, signers, perCommit, rows int) {
	h := lease.Holder{Node: "n", Incarnation: 1}
	s := open(b, filepath.Join(b.TempDir(), "store.db"))
	needs := make([]nonce.Need, signers)
	for i := range needs {
		needs[i].Signer = fmt.Sprintf("eip155:1:0x%040x", i)
	}
	snaps, err := s.Acquire(b.Context(), h, time.Hour, needs)
	if err != nil {
		b.Fatal(err)
	}
	var slowest time.Duration
	for i := range b.N {
		changes := make([]nonce.Change, perCommit)
		for j := range changes {
			changes[j] = handOut(&snaps[(i*perCommit+j*7)%signers], rows)
		}
		began := time.Now()
		res, err := s.Commit(b.Context(), h, time.Hour, changes)
		if err != nil || !res.Applied[0] || !res.Applied[perCommit-1] {
			b.Fatal(res, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(float64(b.N*perCommit*rows)/b.Elapsed().Seconds(), "allocations/s")
	b.ReportMetric(slowest.Seconds()*1e3, "slowest-ms")
}

// handOut changes the snapshot by n new nonces and returns the change.
func handOut(s *nonce.Snapshot, n int) nonce.Change {
	ch := nonce.Change{ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version}
	for range n {
		ch.Rows = append(ch.Rows, nonce.RowChange{Nonce: s.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Hour})
		s.Next++
	}
	s.Held += int64(n)
	s.Version++
	ch.Next, ch.Held = s.Next, s.Held
	return ch
}
