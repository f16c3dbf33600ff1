package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// BenchmarkCommit commits one new nonce for each of 500 signers at a time: what
// a worker does under load. The unit that matters is ns/nonce.
func BenchmarkCommit(b *testing.B) { benchmarkCommit(b, load{}) }

// BenchmarkCommitWithRequestIDs does so for clients that give request ids, as each
// request has that another node forwards.
func BenchmarkCommitWithRequestIDs(b *testing.B) { benchmarkCommit(b, load{ids: true}) }

// BenchmarkCommitOfHolders does so where clients are told apart.
func BenchmarkCommitOfHolders(b *testing.B) { benchmarkCommit(b, load{holder: 1 << 63}) }

// BenchmarkCommitOfMarks marks the nonce before used in the same commit.
func BenchmarkCommitOfMarks(b *testing.B) { benchmarkCommit(b, load{marks: true}) }

// BenchmarkCommitOfMarksOfHolders does so where clients are told apart.
func BenchmarkCommitOfMarksOfHolders(b *testing.B) {
	benchmarkCommit(b, load{marks: true, holder: 1 << 63})
}

type load struct {
	ids, marks bool
	holder     nonce.Principal
}

func benchmarkCommit(b *testing.B, l load) {
	url := server.NewDatabase(b)
	s := openStore(b, url)
	if _, err := s.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	const signers = 500
	h := lease.Holder{Node: "bench", Incarnation: 1}
	needs := make([]nonce.Need, signers)
	for i := range needs {
		needs[i].Signer = fmt.Sprintf("eip155:1:0x%040x", i)
	}
	snaps, err := s.Acquire(b.Context(), h, time.Hour, needs)
	if err != nil {
		b.Fatal(err)
	}
	changes, ids := make([]nonce.Change, signers), 0
	for b.Loop() {
		for i := range changes {
			t := &snaps[i]
			changes[i] = nonce.Change{
				ID: t.ID, Signer: t.Signer, Token: t.Lease.Token, Version: t.Version, Next: t.Next + 1, Held: t.Held + 1,
				Rows: []nonce.RowChange{{Nonce: t.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Minute, Holder: l.holder}},
			}
			if ids++; l.ids {
				changes[i].Requests = []nonce.Request{{ID: fmt.Sprintf("fwd-0123456789abcdef-%d", ids), Nonces: []int64{t.Next}, Attempts: []int64{1}}}
			}
			if l.marks && t.Held > 0 {
				changes[i].Held--
				changes[i].Rows = append(changes[i].Rows, nonce.RowChange{
					Nonce: t.Next - 1, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{1}, Holder: l.holder,
				})
				t.Held--
			}
			t.Version, t.Next, t.Held = t.Version+1, t.Next+1, t.Held+1
		}
		res, err := s.Commit(b.Context(), h, time.Hour, changes)
		if err != nil {
			b.Fatal(err)
		}
		for i, ok := range res.Applied {
			if !ok {
				b.Fatalf("change %d was not applied", i)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*signers), "ns/nonce")
}
