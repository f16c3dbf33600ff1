package postgres_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

// randomLive is a live state of up to so many entries, with all that an entry can have.
func randomLive(rnd *rand.Rand, most int) (live []nonce.Entry) {
	reasons := []string{
		"", "", nonce.ReasonRecordFirst, nonce.ReasonForwarded, nonce.ReasonRepair, nonce.ReasonUnknown, nonce.ReasonExpired,
		nonce.ReasonNotRecorded, nonce.ReasonUnseen, "because", "é \"'\\",
	}
	hash := func() (h nonce.TxHash) {
		for i := range h {
			h[i] = byte(1 + rnd.IntN(255))
		}
		return h
	}
	next := rnd.Int64N(1 << rnd.IntN(62))
	for range rnd.IntN(most + 1) {
		e := nonce.Entry{Nonce: next + rnd.Int64N(3)*rnd.Int64N(300), Attempt: 1 + rnd.Int64N(2)*rnd.Int64N(1<<40), Status: nonce.Released}
		next = e.Nonce + 1
		if rnd.IntN(2) == 0 {
			e.Status, e.Until = nonce.Held, 1_790_000_000_000+rnd.Int64N(1_000_000)-rnd.Int64N(2)*1_790_000_000_000/2
		}
		if rnd.IntN(2) == 0 {
			e.Holder = nonce.Principal(rnd.Uint64())
		}
		n := nonce.Note{Reason: reasons[rnd.IntN(len(reasons))]}
		if rnd.IntN(4) == 0 {
			n.TxHash = hash()
			for range rnd.IntN(nonce.MaxHashes) {
				n.Replaced = n.Replaced.Append(hash())
			}
		}
		if rnd.IntN(4) == 0 {
			n.Earlier = &nonce.Earlier{Attempt: 1 + rnd.Int64N(e.Attempt), Reason: []string{nonce.ReasonUnseen, nonce.ReasonRepair}[rnd.IntN(2)]}
			if rnd.IntN(2) == 0 {
				n.Earlier.TxHash = hash()
			}
		}
		if n != (nonce.Note{}) {
			e.Note = &n
		}
		live = append(live, e)
	}
	return live
}

// liveInSQL decodes a stored live state in the database. It reports whether it can be read.
func liveInSQL(t *testing.T, conn *pgx.Conn, stored []byte) (live []nonce.Entry, read bool) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT coalesce(nonce, 0), status, coalesce(attempt, 0), coalesce(held_until, 0), coalesce(holder, 0), coalesce(reason, ''), tx_hashes,
		coalesce(earlier_attempt, 0), coalesce(earlier_reason, ''), earlier_tx_hash FROM live_entries($1)`, stored)
	if err != nil {
		t.Fatal(err)
	}
	read = true
	var e nonce.Entry
	var holder int64
	var status, reason string
	var hashes, earlierHash []byte
	var was nonce.Earlier
	_, err = pgx.ForEachRow(rows, []any{&e.Nonce, &status, &e.Attempt, &e.Until, &holder, &reason, &hashes, &was.Attempt, &was.Reason, &earlierHash}, func() error {
		n := nonce.Note{Reason: reason}
		n.TxHash, n.Replaced = nonce.SplitHashes(hashes)
		if was.Attempt != 0 {
			earlier := was
			copy(earlier.TxHash[:], earlierHash)
			n.Earlier = &earlier
		}
		if e.Note = nil; n != (nonce.Note{}) {
			e.Note = &n
		}
		e.Holder = nonce.Principal(holder)
		switch status {
		case nonce.Held.String():
			e.Status = nonce.Held
		case nonce.Released.String():
			e.Status = nonce.Released
		default:
			read = status != "UNREADABLE"
		}
		live = append(live, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return live, read
}

func TestTheDatabaseReadsALiveStateAsTheGatewayDoes(t *testing.T) {
	t.Parallel()
	conn := dial(t, newShards(t))
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		live := randomLive(rnd, 1+i/20)
		stored := nonce.AppendLive([]byte{}, live)
		got, read := liveInSQL(t, conn, stored)
		if !read || !reflect.DeepEqual(got, live) {
			t.Fatalf("%x:\ngot  %+v, %t\nwant %+v", stored, got, read, live)
		}
		if len(stored) == 0 {
			continue
		}
		damaged := bytes.Clone(stored)
		damaged[rnd.IntN(len(damaged))] ^= 1 << rnd.IntN(8)
		if got, read := liveInSQL(t, conn, damaged); read {
			t.Fatalf("%x is read as %+v", damaged, got)
		}
		if short := rnd.IntN(len(stored)); short > 0 {
			if got, read := liveInSQL(t, conn, stored[:short]); read {
				t.Fatalf("%x is read as %+v", stored[:short], got)
			}
		}
	}
}

func TestPeopleSeeWhatLivesOfASigner(t *testing.T) {
	t.Parallel()
	url, s, h, writes := owned(t)
	if err := s.RememberNames(t.Context(), []string{"payouts"}); err != nil {
		t.Fatal(err)
	}
	until := time.UnixMilli(1_790_000_000_123)
	w := writes[0]
	w.Signer.Next = 9
	w.Signer.Live = []nonce.Entry{
		{Nonce: 2, Attempt: 3, Status: nonce.Held, Until: until.UnixMilli(), Holder: nonce.PrincipalOf("payouts"), Note: &nonce.Note{TxHash: nonce.TxHash{1}, Replaced: nonce.TxHashes("").Append(nonce.TxHash{2})}},
		{Nonce: 4, Attempt: 2, Status: nonce.Released, Holder: 7, Note: &nonce.Note{Reason: nonce.ReasonExpired, Earlier: &nonce.Earlier{Attempt: 1, Reason: nonce.ReasonRepair, TxHash: nonce.TxHash{3}}}},
		{Nonce: 5, Attempt: 1, Status: nonce.Released},
	}
	if got, err := s.Commit(t.Context(), h, []nonce.Write{w, writes[1]}); err != nil || got.Results[0] != nonce.Applied {
		t.Fatalf("got %+v, %v", got, err)
	}
	execute(t, dial(t, url), `UPDATE signer SET live = '\xff' WHERE signer = $1`, writes[1].Name)
	var got []string
	rows, err := dial(t, url).Query(t.Context(), `SELECT format('%s %s %s %s %s %s %s %s %s %s %s', nonce, status, attempt, extract(epoch FROM held_until), holder, reason, left(tx_hash, 6), left(replaced::text, 7),
		earlier_attempt, earlier_reason, left(earlier_tx_hash, 6)) FROM signer_live ORDER BY nonce`)
	if err == nil {
		got, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	want := []string{
		"2 HELD 3 1790000000.123000 payouts  0x0100 {0x0200   ", "4 RELEASED 2  0000000000000007 expired   1 repair 0x0300", "5 RELEASED 1        ", " UNREADABLE         ",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
}
