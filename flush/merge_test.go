package flush

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"noncegate/nonce"
)

// history is a random run of one signer as the rules allow it.
func history(r *rand.Rand, n int) []Entry {
	s := newRows(1).signers[1]
	var entries []Entry
	for v := range int64(n) {
		e := event(1, v)
		e.Next, e.Floor, e.Held = s.next, r.Int64N(4), r.Int64N(9)
		touched := map[int64]bool{}
		for range r.IntN(4) {
			at := r.Int64N(e.Next + 1)
			was := s.rows[at]
			if touched[at] {
				continue
			}
			touched[at] = true
			switch {
			case at == e.Next:
				e.Rows = append(e.Rows, fresh(at))
				e.Next++
			case r.IntN(4) == 0: // by a repair, whatever it is; there are no others without a row
				was.Nonce, was.Status, was.Attempt, was.Reason = at, nonce.Held, was.Attempt+1, nonce.ReasonRepair
				was.Fresh = was.Attempt == 1
				e.Rows = append(e.Rows, was)
			case was.Status == nonce.Held && r.IntN(3) == 0:
				was.Reason = []string{was.Reason, nonce.ReasonUnknown}[r.IntN(2)]
				e.Rows = append(e.Rows, signed(was, r))
			case was.Status == nonce.Consumed:
				e.Rows = append(e.Rows, signed(was, r))
			case was.Status == nonce.Held:
				was.Status, was.Reason = []nonce.Status{nonce.Released, nonce.Consumed}[r.IntN(2)], ""
				e.Rows = append(e.Rows, was)
			case was.Status == nonce.Released:
				was.Status, was.Attempt = nonce.Held, was.Attempt+1
				e.Rows = append(e.Rows, was)
			}
		}
		if r.IntN(3) == 0 {
			e.Requests = []nonce.Remembered{{Request: nonce.Request{ID: strconv.FormatInt(v, 10)}}}
		}
		if r.IntN(6) == 0 {
			e.BelowFloor, e.Floor = true, r.Int64N(e.Next+1)
		}
		next, err := s.follow(&e)
		if err != nil {
			panic(err)
		}
		s = next
		entries = append(entries, Entry{Entry: strconv.FormatInt(v, 10), FlushEvent: e})
	}
	return entries
}

// signed is a row with a hash more.
func signed(row nonce.FlushRow, r *rand.Rand) nonce.FlushRow {
	if row.TxHash != (nonce.TxHash{}) {
		row.Replaced = row.Replaced.Append(row.TxHash)
	}
	row.TxHash = nonce.TxHash{byte(r.IntN(256)), 1}
	return row
}

func TestMergedEventsLeaveWhatTheirPartsLeave(t *testing.T) {
	merged := 0
	for seed := range uint64(300) {
		entries := history(rand.New(rand.NewPCG(seed, 1)), 40)
		apart, together := newRows(1).signers[1], newRows(1).signers[1]
		for i := range entries {
			next, err := apart.follow(&entries[i].FlushEvent)
			if err != nil {
				t.Fatal(err)
			}
			apart = next
		}
		n := 0
		for _, g := range merge(0, entries)[1] {
			if g.event.From != together.version {
				t.Fatalf("seed %d: a group begins at version %d, want %d", seed, g.event.From, together.version)
			}
			next, err := together.follow(&g.event)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			together = next
			n += len(g.entries)
			if len(g.entries) > 1 {
				merged++
			}
		}
		if n != len(entries) || !reflect.DeepEqual(together, apart) {
			t.Fatalf("seed %d: %d entries left %+v, want %d and %+v", seed, n, together, len(entries), apart)
		}
	}
	if merged == 0 {
		t.Error("nothing was merged")
	}
}

func TestWhatDoesNotFitBeginsAnotherGroup(t *testing.T) {
	id := func(e nonce.FlushEvent) nonce.FlushEvent {
		e.Requests = []nonce.Remembered{{Request: nonce.Request{ID: "a"}}}
		return e
	}
	floor := event(1, 0, fresh(0))
	floor.BelowFloor = true
	lower := fresh(0)
	lower.Fresh, lower.Attempt = false, 0
	repair, released := lower, used(0)
	repair.Attempt, repair.Reason = 2, nonce.ReasonRepair
	released.Status, released.Attempt = nonce.Released, 2
	for name, pair := range map[string][2]nonce.FlushEvent{
		"a gap":                          {event(1, 0), event(1, 2)},
		"the same event again":           {event(1, 0), event(1, 0)},
		"another epoch":                  {event(1, 0), event(1, nonce.NextEpoch(1))},
		"what comes after a floor":       {floor, event(1, 1)},
		"a row that is made twice":       {event(1, 0, fresh(0)), event(1, 1, fresh(0))},
		"a consumed row that changes":    {event(1, 0, used(0)), event(1, 1, used(0))},
		"what becomes of a repair":       {event(1, 0, repair), event(1, 1, released)},
		"a repair of a consumed row":     {event(1, 0, used(0)), event(1, 1, repair)},
		"an attempt that falls":          {event(1, 0, fresh(0)), event(1, 1, lower)},
		"a request id that is new again": {id(event(1, 0)), id(event(1, 1))},
	} {
		groups := merge(0, []Entry{{Entry: "1", FlushEvent: pair[0]}, {Entry: "2", FlushEvent: pair[1]}})[1]
		if len(groups) != 2 {
			t.Errorf("%s: %d groups, want 2", name, len(groups))
		}
	}
	if groups := merge(0, []Entry{{Entry: "1", FlushEvent: event(1, 0, fresh(0))}, {Entry: "2", FlushEvent: event(1, 1, used(0))}})[1]; len(groups) != 1 {
		t.Errorf("two events that follow each other: %d groups, want 1", len(groups))
	}
}

func TestAMergeLeavesTheEntriesAsTheyWereRead(t *testing.T) {
	entries := []Entry{{Entry: "1", FlushEvent: event(1, 0, fresh(0))}, {Entry: "2", FlushEvent: event(1, 1, used(0))}}
	g := merge(0, entries)[1][0]
	if got := entries[0].Rows[0]; got != fresh(0) {
		t.Errorf("the first entry's row became %+v", got)
	}
	if want := (nonce.FlushRow{Fresh: true, Status: nonce.Consumed, Attempt: 1}); len(g.event.Rows) != 1 || g.event.Rows[0] != want {
		t.Errorf("the merged rows are %+v, want %+v", g.event.Rows, want)
	}
}
