package storetest

import (
	"time"

	"noncegate/nonce"
)

// signed makes the last row have so many hashes.
func (e *event) signed(hashes int64) *event {
	r := &e.Rows[len(e.Rows)-1]
	if r.TxHash, r.Replaced = (nonce.TxHash{}), ""; hashes > 0 {
		r.TxHash, r.Replaced = hash(hashes), replaced(hashes-1)
	}
	return e
}

// because makes the last row say why.
func (e *event) because(reason string) *event {
	e.Rows[len(e.Rows)-1].Reason = reason
	return e
}

// goOn changes a hold under its attempt.
func (e *event) goOn(n, attempt int64, d time.Duration, hashes int64, reason string) *event {
	return e.row(nonce.FlushRow{Nonce: n, Status: nonce.Held, Attempt: attempt, HeldUntil: e.At.Add(d)}).signed(hashes).because(reason)
}

// repair hands out a nonce again that was not held.
func (e *event) repair(n, attempt int64) *event {
	return e.again(n, attempt).because(nonce.ReasonRepair)
}

// usedAgain says that a nonce that is consumed at attempt 1 has these hashes.
func (e *event) usedAgain(n, hashes int64) *event {
	return e.row(nonce.FlushRow{Nonce: n, Status: nonce.Consumed, Attempt: 1, Holder: ann}).signed(hashes).because("told later")
}

// flushedChainRules: hashes, reasons and repairs of Redis are those of the store.
var flushedChainRules = []engineRule{
	{"an event has hashes and reasons, of rows in every state, fresh ones too", func(f *engines) {
		snap := f.entered(signer, 3)
		e := f.after(snap).goOn(0, 1, long, 8, nonce.ReasonForwarded).end(1, 1, nonce.Released).signed(2).end(2, 1, nonce.Consumed).signed(3).because(nonce.ReasonMined)
		e.hold(1, long).signed(1).because(nonce.ReasonRecordFirst).hold(1, long).because(nonce.ReasonUnknown)
		got := f.follows(e)
		f.same("rows", inOrder(got.Rows), exactly([]nonce.Row{
			{Nonce: 0, Status: nonce.Held, Attempt: 1, Token: snap.Lease.Token, TxHash: hash(8), Replaced: replaced(7), Reason: nonce.ReasonForwarded, HeldUntil: e.At.Add(long)},
			{Nonce: 1, Status: nonce.Released, Attempt: 1, Token: snap.Lease.Token, TxHash: hash(2), Replaced: replaced(1), Reason: "given back"},
			{Nonce: 2, Status: nonce.Consumed, Attempt: 1, Token: snap.Lease.Token, TxHash: hash(3), Replaced: replaced(2), Reason: nonce.ReasonMined},
			{Nonce: 3, Status: nonce.Held, Attempt: 1, Token: snap.Lease.Token, TxHash: hash(1), Reason: nonce.ReasonRecordFirst, HeldUntil: e.At.Add(long)},
			{Nonce: 4, Status: nonce.Held, Attempt: 1, Token: snap.Lease.Token, Reason: nonce.ReasonUnknown, HeldUntil: e.At.Add(long)},
		}))
		got = f.follows(f.after(got).goOn(0, 1, 2*long, 0, "").end(1, 1, nonce.Consumed).signed(4))
		if rows := inOrder(got.Rows); rows[0].TxHash != (nonce.TxHash{}) || rows[0].Replaced != "" || rows[0].Reason != "" || rows[1].Replaced != replaced(3) || got.Held != 2 {
			f.Errorf("got %+v", got)
		}
	}},
	{"an event may hand out by a repair what is held or consumed, or what had no row below the cursor", func(f *engines) {
		snap := f.entered(signer, 3)
		e := f.after(snap).end(1, 1, nonce.Consumed)
		e.Floor, e.Next, e.BelowFloor = 6, 6, true
		e = f.after(f.follows(e)).goOn(0, 2, long, 2, nonce.ReasonRepair).repair(1, 2)
		e.Held++
		got := f.follows(e.row(nonce.FlushRow{Nonce: 4, Fresh: true, Status: nonce.Held, Attempt: 1, Reason: nonce.ReasonRepair, HeldUntil: e.At.Add(long)}))
		token, until := snap.Lease.Token, e.At.Add(long)
		f.same("rows", inOrder(got.Rows), exactly([]nonce.Row{
			{Nonce: 0, Status: nonce.Held, Attempt: 2, Token: token, TxHash: hash(2), Replaced: replaced(1), Reason: nonce.ReasonRepair, HeldUntil: until},
			{Nonce: 1, Status: nonce.Held, Attempt: 2, Token: token, Reason: nonce.ReasonRepair, HeldUntil: until},
			inOrder(snap.Rows)[2],
			{Nonce: 4, Status: nonce.Held, Attempt: 1, Token: token, Reason: nonce.ReasonRepair, HeldUntil: until},
		}))
		if sum, err := f.EngineStore.Summary(f.Context(), signer); err != nil || got.Next != 6 || got.Held != 4 || sum.Held != 4 {
			f.Errorf("got %+v, %+v, %v", got, sum, err)
		}
		f.follows(f.after(got).end(1, 2, nonce.Consumed).end(4, 1, nonce.Released))
	}},
	{"no other event hands out what is consumed", func(f *engines) {
		f.entered(other, 1)
		snap := f.follows(f.after(f.entered(signer, 2)).end(0, 1, nonce.Consumed))
		f.contradicts("a hold of a higher attempt", f.after(snap).again(0, 2))
		f.contradicts("a hold for another reason", f.after(snap).again(0, 2).because(nonce.ReasonForwarded))
		f.contradicts("a repair under its attempt", f.after(snap).repair(0, 1))
		f.contradicts("a release of a higher attempt", f.after(snap).end(0, 2, nonce.Released).because(nonce.ReasonRepair))
		f.contradicts("a repair as a new row", f.after(snap).row(nonce.FlushRow{Nonce: 0, Fresh: true, Status: nonce.Held, Attempt: 2, Reason: nonce.ReasonRepair, HeldUntil: snap.Now}))
	}},
	{"what is consumed may get hashes by an event, and loses none", func(f *engines) {
		f.entered(other, 1)
		snap := f.follows(f.after(f.entered(signer, 2)).end(0, 1, nonce.Consumed).signed(0).because(nonce.ReasonMined))
		for hashes := int64(1); hashes < 4; hashes++ {
			e := f.after(snap).usedAgain(0, hashes)
			snap = f.follows(e)
			row := f.list(nonce.ListQuery{Signer: signer, Limit: 1}).Rows[0]
			if row.TxHash != hash(hashes) || row.Replaced != replaced(hashes-1) || row.Reason != "told later" || row.Holder != ann || !exact(row.UpdatedAt).Equal(exact(e.At)) {
				f.Errorf("got %+v, want %d hashes", row, hashes)
			}
		}
		f.contradicts("none", f.after(snap).usedAgain(0, 0))
		f.contradicts("fewer", f.after(snap).usedAgain(0, 2))
		foreign := f.after(snap).usedAgain(0, 3)
		foreign.Rows[0].TxHash = hash(9)
		f.contradicts("another newest one that replaced nothing", foreign)
		other := f.after(snap).usedAgain(0, 3) // it was the one before that was mined
		other.Rows[0].TxHash, other.Rows[0].Replaced = hash(2), replaced(1).Append(hash(3))
		if got := inOrder(f.follows(other).Rows)[0]; got.TxHash != hash(2) {
			f.Errorf("got %+v", got)
		}
	}},
	{"a copy has hashes and reasons", func(f *engines) {
		snap := f.marked(signer, long)
		rows, _, _ := f.copied(snap.ID, 1)
		f.markedRows("copied", rows, 0, 1)
	}},
	{"a repair far below the others is copied, listed and lost with them", func(f *engines) {
		f.up()
		e := on(f.take(alice, signer)).hold(20, long)
		f.applied(alice, e)
		e = on(f.all(signer))
		for n := range int64(18) {
			e.end(n, 1, nonce.Consumed)
		}
		f.applied(alice, e)
		f.applied(alice, on(f.all(signer)).repair(1, nonce.Consumed, 1))
		snap := f.all(signer)
		rows, _, _ := f.copied(snap.ID, 9)
		f.same("copied", noncesOf(rows), []int64{1, 18, 19})
		f.same("listed", noncesOf(f.list(nonce.ListQuery{Signer: signer, Status: nonce.Held, Limit: 9}).Rows), []int64{1, 18, 19})
		if sum, err := f.EngineStore.Summary(f.Context(), signer); err != nil || sum.Held != 3 || sum.LowestHeld != 1 {
			f.Errorf("got %+v, %v", sum, err)
		}
		f.enter(alice, moveOf(snap), long, short)
		f.lose(alice, short, f.all(signer))
		if got := f.all(signer); got.Held != 3 || len(got.Due) > 0 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a hold in doubt that goes on is not due before the doubt ends, whatever its holder is told", func(f *engines) {
		_, snap := f.lost(signer, 300*short)
		at := f.applied(alice, on(snap).goOn(0, 1, short, 1, nonce.ReasonForwarded).goOn(1, 1, long, 1, "")).Now
		f.passes(at.Add(short))
		got := f.all(signer)
		due, _, err := f.Due(f.Context(), 9)
		f.ok(err)
		sum, err := f.EngineStore.Summary(f.Context(), signer)
		f.ok(err)
		if !got.Now.Before(got.DoubtUntil) || !sum.Now.Before(got.DoubtUntil) {
			f.Fatal("the doubt ended before the test could look")
		}
		if len(got.Due) > 0 || len(due) > 0 || sum.Held != 3 || sum.Overdue != 0 {
			f.Errorf("due %+v and %+v, %+v", got.Due, due, sum)
		}
		rows := inOrder(got.Rows)
		if !exact(rows[0].HeldUntil).Equal(exact(at.Add(short))) || rows[0].TxHash != hash(1) || !exact(rows[1].HeldUntil).Equal(exact(at.Add(long))) {
			f.Errorf("got %+v", rows[:2])
		}
		f.passes(got.DoubtUntil)
		if due := f.all(signer).Due; len(due) == 0 || due[0].Nonce != 0 {
			f.Errorf("after the doubt: due %+v", due)
		}
	}},
}
