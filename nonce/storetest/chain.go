package storetest

import (
	"slices"
	"time"

	"noncegate/nonce"
)

// hash is one of many.
func hash(n int64) nonce.TxHash { return nonce.TxHash{0: 0xcd, 31: byte(n)} }

// replaced are the hashes 1 to n.
func replaced(n int64) (all nonce.TxHashes) {
	for i := range n {
		all = all.Append(hash(i + 1))
	}
	return all
}

// goOn changes a hold under its attempt: its deadline, hash, replaced ones and reason.
func (e *edit) goOn(n, attempt int64, d time.Duration, hashes int64, reason string) *edit {
	return e.row(nonce.RowChange{
		Nonce: n, FromStatus: nonce.Held, FromAttempt: attempt, Status: nonce.Held, Attempt: attempt, Hold: d, Reason: reason,
	}).signed(hashes)
}

// signed makes the last row have so many hashes.
func (e *edit) signed(hashes int64) *edit {
	if rc := &e.Rows[len(e.Rows)-1]; hashes > 0 {
		rc.TxHash, rc.Replaced = hash(hashes), replaced(hashes-1)
	}
	return e
}

// because makes the last row say why.
func (e *edit) because(reason string) *edit {
	e.Rows[len(e.Rows)-1].Reason = reason
	return e
}

// repair hands out a nonce again whatever it is.
func (e *edit) repair(n int64, from nonce.Status, attempt int64) *edit {
	if from != nonce.Held {
		e.Held++
	}
	return e.row(nonce.RowChange{
		Nonce: n, FromStatus: from, FromAttempt: attempt, Status: nonce.Held, Attempt: attempt + 1, Hold: long, Reason: nonce.ReasonRepair,
	})
}

// repairSkipped hands out a nonce below the cursor that has no row.
func (e *edit) repairSkipped(n int64) *edit {
	e.Held++
	return e.row(nonce.RowChange{Nonce: n, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long, Reason: nonce.ReasonRepair})
}

// marked are a signer's nonces 0, 1 and 2, HELD, RELEASED and CONSUMED, all with hashes
// and a reason and by request id r.
func (f *fixture) marked(name string, d time.Duration) nonce.Snapshot {
	f.Helper()
	res := f.applied(alice, on(f.take(alice, name)).hold(3, d).by(ben).asked("r"))
	e := on(f.all(name)).goOn(0, 1, d, 3, nonce.ReasonForwarded).of(ben).end(1, 1, nonce.Released).signed(2).of(ben)
	f.applied(alice, e.end(2, 1, nonce.Consumed).signed(8).of(ben).because(nonce.ReasonMined))
	f.passes(res.Now)
	return f.all(name)
}

// markedRows compares rows with those of marked.
func (f *fixture) markedRows(what string, rows []nonce.Row, nonces ...int64) {
	f.Helper()
	if !slices.Equal(noncesOf(rows), nonces) {
		f.Errorf("%s: got nonces %v, want %v", what, noncesOf(rows), nonces)
	}
	for _, row := range rows {
		hashes := []int64{3, 2, 8}[row.Nonce]
		reason := []string{nonce.ReasonForwarded, "given back", nonce.ReasonMined}[row.Nonce]
		if row.TxHash != hash(hashes) || row.Replaced != replaced(hashes-1) || row.Reason != reason || row.Holder != ben {
			f.Errorf("%s: got %+v, want %d hashes and reason %q", what, row, hashes, reason)
		}
	}
}

var chainRules = []rule{
	{"every way of reading a row has its hashes, the newest first, and its reason, whatever its status", func(f *fixture) {
		f.passes(f.marked(signer, short).Now.Add(short))
		for _, want := range []struct {
			what   string
			need   nonce.Need
			nonces []int64
		}{
			{"by number", nonce.Need{Nonces: []int64{0, 1, 2}}, []int64{0, 1, 2}},
			{"by request id", nonce.Need{RequestIDs: []string{"r"}}, []int64{0, 1, 2}},
			{"released", nonce.Need{Released: 5}, []int64{1}},
			{"overdue", nonce.Need{Due: 5}, []int64{0}},
		} {
			want.need.Signer = signer
			f.markedRows(want.what, inOrder(f.load(want.need).Rows), want.nonces...)
			f.markedRows(want.what+", under a lock", inOrder(f.seenLocked(want.need).Rows), want.nonces...)
			f.markedRows(want.what+", acquired", inOrder(f.try(alice2, long, want.need).Rows), want.nonces...)
		}
		f.markedRows("due", f.load(nonce.Need{Signer: signer, Due: 5}).Due, 0)
		f.markedRows("listed", f.list(nonce.ListQuery{Signer: signer, Limit: 9}).Rows, 0, 1, 2)
		for i, status := range []nonce.Status{nonce.Held, nonce.Released, nonce.Consumed} {
			f.markedRows("listed "+status.String(), f.list(nonce.ListQuery{Signer: signer, Status: status, Limit: 9}).Rows, int64(i))
		}
	}},
	{"one commit has rows of none to eight hashes, with and without a reason, fresh ones too", func(f *fixture) {
		e := on(f.take(alice, signer))
		for n := range int64(2 * (nonce.MaxHashes + 1)) {
			if e.hold(1, long).signed(n % (nonce.MaxHashes + 1)); n > nonce.MaxHashes {
				e.because(nonce.ReasonRecordFirst)
			}
		}
		f.applied(alice, e)
		e = on(f.all(signer))
		for _, row := range inOrder(f.all(signer).Rows) {
			hashes := row.Nonce % (nonce.MaxHashes + 1)
			reason := []string{"", nonce.ReasonRecordFirst}[row.Nonce/(nonce.MaxHashes+1)]
			if hashes == 0 && row.TxHash != (nonce.TxHash{}) || hashes > 0 && (row.TxHash != hash(hashes) || row.Replaced != replaced(hashes-1)) || row.Reason != reason {
				f.Errorf("got %+v, want %d hashes and reason %q", row, hashes, reason)
			}
			e.goOn(row.Nonce, 1, long, nonce.MaxHashes-hashes, "")
		}
		f.applied(alice, e)
		for _, row := range f.all(signer).Rows {
			hashes := nonce.MaxHashes - row.Nonce%(nonce.MaxHashes+1)
			if hashes == 0 && row.TxHash != (nonce.TxHash{}) || hashes > 0 && (row.TxHash != hash(hashes) || row.Replaced != replaced(hashes-1)) || row.Reason != "" {
				f.Errorf("written again: got %+v, want %d hashes and no reason", row, hashes)
			}
		}
	}},
	{"nonces in a row are handed out with a reason", func(f *fixture) {
		e := on(f.take(alice, signer)).hold(3, long).asked("r")
		for i := range e.Rows {
			e.Rows[i].Reason = nonce.ReasonRecordFirst
		}
		f.applied(alice, e)
		for _, row := range f.all(signer).Rows {
			if row.Reason != nonce.ReasonRecordFirst || row.Status != nonce.Held {
				f.Errorf("got %+v", row)
			}
		}
	}},
	{"a hold goes on under its attempt, with a new deadline, its hash and its request id", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(2, short).by(ann).asked("r"))
		snap := f.take(alice, signer)
		res := f.applied(alice, on(snap).goOn(0, 1, long, 0, "").of(ann).goOn(1, 1, 2*long, 1, nonce.ReasonForwarded).of(ann))
		got := f.list(nonce.ListQuery{Signer: signer, Limit: 9}).Rows
		f.same("rows", got, []nonce.Row{
			{Nonce: 0, Status: nonce.Held, Attempt: 1, Token: snap.Lease.Token, HeldUntil: exact(res.Now.Add(long)), Holder: ann, RequestID: "r", UpdatedAt: exact(res.Now)},
			{Nonce: 1, Status: nonce.Held, Attempt: 1, Token: snap.Lease.Token, HeldUntil: exact(res.Now.Add(2 * long)), Holder: ann, TxHash: hash(1), Reason: nonce.ReasonForwarded, RequestID: "r", UpdatedAt: exact(res.Now)},
		})
		if after := f.all(signer); after.Held != 2 || after.Version != snap.Version+1 {
			f.Errorf("got %+v", after)
		}
		f.passes(res.Now.Add(short))
		if due, _, err := f.Store.Due(f.Context(), 5); err != nil || len(due) != 0 {
			f.Errorf("due after the old deadline: got %+v, %v", due, err)
		}
		f.applied(alice, on(f.all(signer)).goOn(0, 1, 0, 0, ""))
		if due := f.all(signer).Due; !slices.Equal(noncesOf(due), []int64{0}) {
			f.Errorf("due by the new deadline: got %+v", due)
		}
	}},
	{"a repair hands out what is held, released or consumed, with a higher attempt", func(f *fixture) {
		f.applied(alice, on(f.marked(signer, long)).repair(0, nonce.Held, 1).of(ann).signed(4).repair(1, nonce.Released, 1).repair(2, nonce.Consumed, 1).of(ann))
		got := f.list(nonce.ListQuery{Signer: signer, Status: nonce.Held, Limit: 9}).Rows
		for i, row := range got {
			holder, newest := []nonce.Principal{ann, 0, ann}[i], []nonce.TxHash{hash(4), {}, {}}[i]
			if row.Nonce != int64(i) || row.Attempt != 2 || row.Reason != nonce.ReasonRepair || row.Holder != holder || row.TxHash != newest || row.RequestID != "" {
				f.Errorf("got %+v", row)
			}
		}
		sum, err := f.Store.Summary(f.Context(), signer)
		if f.ok(err); len(got) != 3 || sum.Held != 3 || sum.Consumed != 0 || sum.LowestHeld != 0 {
			f.Errorf("got %d holds and %+v", len(got), sum)
		}
		f.applied(alice, on(f.all(signer)).end(2, 2, nonce.Released).end(0, 2, nonce.Consumed))
		if snap := f.all(signer); snap.Held != 1 || !slices.Equal(snap.Released, []int64{2}) {
			f.Errorf("got %+v", snap)
		}
	}},
	{"no other hand-out overwrites what is held or consumed", func(f *fixture) {
		snap := f.marked(signer, long)
		again := func(n int64, from nonce.Status, attempt int64, reason string) *edit {
			e := on(snap).repair(n, from, 1).because(reason)
			e.Rows[0].Attempt = attempt
			return e
		}
		for _, e := range []*edit{
			again(0, nonce.Held, 2, ""), again(0, nonce.Held, 2, nonce.ReasonForwarded), again(0, nonce.Held, 0, nonce.ReasonRepair),
			again(2, nonce.Consumed, 2, ""), again(2, nonce.Consumed, 2, nonce.ReasonMined), again(2, nonce.Consumed, 1, nonce.ReasonRepair),
		} {
			_, err := f.tryCommit(alice, e)
			if err == nil || nonce.OutcomeOf(err) != nonce.Aborted {
				f.Errorf("%+v: got %v, want an aborted commit", e.Rows, err)
			}
			f.unchanged(snap)
		}
		f.violates(again(0, nonce.Held, 2, ""))
	}},
	{"a repair hands out a nonce below the cursor that has no row, once", func(f *fixture) {
		f.applied(alice, on(f.filled(signer, 2)).raise(6))
		f.applied(alice, on(f.all(signer)).repairSkipped(5)) // as a new one at the cursor would be, but for the reason
		f.applied(alice, on(f.all(signer)).repairSkipped(3).repairSkipped(2).of(ann))
		snap := f.all(signer)
		if got := noncesOf(inOrder(snap.Rows)); !slices.Equal(got, []int64{0, 1, 2, 3, 5}) || snap.Next != 6 || snap.Held != 5 || snap.Floor != 6 {
			f.Errorf("got %+v", snap)
		}
		for _, row := range snap.Rows {
			if row.Nonce > 1 && (row.Status != nonce.Held || row.Attempt != 1 || row.Reason != nonce.ReasonRepair) {
				f.Errorf("got %+v", row)
			}
		}
		f.aborts(on(snap).repairSkipped(3))
		e := on(f.all(signer))
		for _, n := range []int64{0, 1, 2, 3, 5} {
			e.end(n, 1, nonce.Consumed)
		}
		f.passes(f.applied(alice, e).Now.Add(short))
		f.prunes(alice, f.all(signer), 9, nonce.Pruned{Applied: true, Below: 6, Rows: 5})
	}},
	{"what is consumed may get a hash, and another in its place", func(f *fixture) {
		f.applied(alice, on(f.filled(signer, 1)).end(0, 1, nonce.Consumed).signed(0).because(nonce.ReasonMined))
		for hashes := range int64(3) {
			e := on(f.all(signer)).row(nonce.RowChange{Nonce: 0, FromStatus: nonce.Consumed, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, Holder: ann})
			f.applied(alice, e.signed(hashes+1))
			row := f.all(signer).Rows[0]
			if row.Status != nonce.Consumed || row.TxHash != hash(hashes+1) || row.Replaced != replaced(hashes) || row.Reason != "" || row.Holder != ann {
				f.Errorf("got %+v, want %d hashes", row, hashes+1)
			}
		}
	}},
	{"the floor leaves what it consumes its hashes", func(f *fixture) {
		f.applied(alice, on(f.filled(signer, 2)).end(0, 1, nonce.Released).signed(3))
		f.applied(alice, on(f.all(signer)).end(1, 1, nonce.Released).signed(2).raise(2))
		for _, row := range f.all(signer).Rows {
			if hashes := 3 - row.Nonce; row.Status != nonce.Consumed || row.TxHash != hash(hashes) || row.Replaced != replaced(hashes-1) {
				f.Errorf("got %+v, want %d hashes", row, hashes)
			}
		}
	}},
}

// seenLocked is what a plan sees that changes nothing.
func (f *fixture) seenLocked(need nonce.Need) (seen nonce.Snapshot) {
	f.Helper()
	f.locked(need, func(s nonce.Snapshot) *edit {
		seen = s
		return check(s)
	})
	return seen
}

// unknownRules: holds of which nobody knows whether they were used.
var unknownRules = []rule{
	{"an unknown hold is held whatever its deadline, and is due by it", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(6, long))
		e := on(f.all(signer)).goOn(0, 1, short, 0, nonce.ReasonUnknown).goOn(1, 1, short, 1, nonce.ReasonUnknown).goOn(2, 1, short, 0, "")
		e.goOn(3, 1, long, 2, nonce.ReasonUnknown).goOn(4, 1, short, 1, nonce.ReasonForwarded).raise(1)
		f.passes(f.applied(alice, e).Now.Add(short))
		sum, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		// 0 unknown below the floor, 1 and 3 unknown, 2 and 4 overdue, 5 held
		if sum.Held != 4 || sum.Unknown != 3 || sum.Released != 2 || sum.Overdue != 2 || sum.Consumed != 0 || sum.LowestHeld != 0 {
			f.Errorf("got %+v", sum)
		}
		snap := f.load(nonce.Need{Signer: signer, Due: 9})
		due := noncesOf(snap.Due)
		if slices.Sort(due); !slices.Equal(due, []int64{0, 1, 2, 4}) || snap.Held != 6 {
			f.Errorf("due %v, held %d", due, snap.Held)
		}
		if signers, _, err := f.Store.Due(f.Context(), 5); err != nil || len(signers) != 1 {
			f.Errorf("got %+v, %v", signers, err)
		}
	}},
	{"a signer is due by an unknown hold alone", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(1, long))
		res := f.applied(alice, on(f.all(signer)).goOn(0, 1, short, 0, nonce.ReasonUnknown))
		if due, _, err := f.Store.Due(f.Context(), 5); err != nil || len(due) > 1 {
			f.Errorf("got %+v, %v", due, err)
		}
		f.passes(res.Now.Add(short))
		if due, _, err := f.Store.Due(f.Context(), 5); err != nil || len(due) != 1 || due[0].Signer != signer {
			f.Errorf("got %+v, %v", due, err)
		}
	}},
	{"a list of unknown holds has these and no others, in pages", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(9, long))
		e := on(f.all(signer)).end(0, 1, nonce.Released).because(nonce.ReasonUnknown).goOn(2, 1, long, 0, nonce.ReasonForwarded)
		for _, n := range []int64{1, 3, 4, 6, 8} {
			e.goOn(n, 1, short, n%3, nonce.ReasonUnknown)
		}
		f.applied(alice, e)
		f.applied(alice, on(f.all(signer)).end(6, 1, nonce.Consumed).because(nonce.ReasonUnknown))
		var got []int64
		for q := (nonce.ListQuery{Signer: signer, Status: nonce.Held, Unknown: true, Limit: 2}); ; {
			page := f.list(q)
			for _, row := range page.Rows {
				if row.Reason != nonce.ReasonUnknown || row.Status != nonce.Held || row.UpdatedAt.IsZero() {
					f.Errorf("got %+v", row)
				}
			}
			got = append(got, noncesOf(page.Rows)...)
			if q.From = page.NextFrom; q.From < 0 {
				break
			}
		}
		if !slices.Equal(got, []int64{1, 3, 4, 8}) {
			f.Errorf("got %v", got)
		}
	}},
}
