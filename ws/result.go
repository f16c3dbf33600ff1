package ws

import (
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/wire"
)

func allocateResult(op *nonce.Op) *wire.AllocateResult {
	r := &wire.AllocateResult{
		Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0],
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
	}
	if op.Count > 1 {
		r.Nonces = make([]wire.NonceAttempt, len(op.Nonces))
		for i, n := range op.Nonces {
			r.Nonces[i] = wire.NonceAttempt{Nonce: n, Attempt: op.Attempts[i], Reissued: reissuedOf(op, i)}
		}
	}
	r.Reissued = reissuedOf(op, 0)
	return r
}

// reissuedOf is what the i-th nonce of an op was before, where its holder must know it.
func reissuedOf(op *nonce.Op, i int) *wire.Reissued {
	if i >= len(op.Earlier) {
		return nil
	}
	return reissued(op.Earlier[i])
}

func reissued(was *nonce.Earlier) *wire.Reissued {
	if was == nil {
		return nil
	}
	return &wire.Reissued{Attempt: was.Attempt, Reason: was.Reason, TxHash: was.TxHash.String()}
}

func extendResult(op *nonce.Op) *wire.ExtendResult {
	return &wire.ExtendResult{
		Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Result.Attempt,
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
	}
}

func floorResult(op *nonce.Op) *wire.FloorResult {
	return &wire.FloorResult{Signer: op.Signer, Floor: op.Result.Floor, Next: op.Next}
}

func markResult(op *nonce.Op) *wire.MarkResult {
	r := &wire.MarkResult{
		Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Result.Attempt,
		Status: op.Status.String(), Replaced: op.Replaced.String(),
	}
	r.TxHash, r.TxHashes = hashesOf(op.Hashes)
	if op.Kind == nonce.KindMarkSigned && op.Status == nonce.Held {
		until := wire.Time(op.HeldUntil)
		r.HeldUntil, r.HoldMs = &until, op.HoldLeft.Milliseconds()
	}
	r.Reissued = reissuedOf(op, 0)
	return r
}

// hashesOf are the newest of some hashes, and all of them if there are several. They
// are ordered newest first.
func hashesOf(hs nonce.TxHashes) (newest string, all []string) {
	n := hs.Len()
	if n == 0 {
		return "", nil
	}
	if n == 1 {
		return hs.At(0).String(), nil
	}
	all = make([]string, n)
	for i := range all {
		all[i] = hs.At(i).String()
	}
	return all[0], all
}

func (c *conn) repairResult(op *nonce.Op) *wire.RepairResult {
	r := &wire.RepairResult{
		Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0],
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
		Was: wasOf(op.Before), Reissued: reissuedOf(op, 0),
	}
	var newest string
	newest, r.TxHashes = hashesOf(op.Hashes)
	if newest != "" && r.TxHashes == nil {
		r.TxHashes = []string{newest}
	}
	offer := op.Offer
	if ask := c.srv.cfg.ChainOffer; offer == nil && ask != nil {
		offer = ask(op.Signer, op.Nonces[0])
	}
	if offer != nil {
		quantity := func(s string) string { return clipTo(s, maxQuantity) }
		r.Offer = &wire.Offer{
			GasPrice: quantity(offer.GasPrice), MaxFeePerGas: quantity(offer.MaxFeePerGas),
			MaxPriorityFeePerGas: quantity(offer.MaxPriorityFeePerGas), MaxFeePerBlobGas: quantity(offer.MaxFeePerBlobGas),
		}
	}
	return r
}

// wasOf is the state in which a repair found its nonce. One that nobody held, because
// a floor or the chain skipped it, counts as CONSUMED.
func wasOf(b *nonce.Before) *wire.Was {
	switch {
	case b == nil:
		return nil
	case b.Status == 0:
		return &wire.Was{Status: wire.StatusConsumed}
	}
	unknown := b.Status == nonce.Held && b.Reason == nonce.ReasonUnknown
	return &wire.Was{Status: wordOf(b.Status, unknown), Attempt: b.Attempt, Reason: b.Reason}
}

func (c *conn) statusResult(op *nonce.Op) *wire.StatusResult {
	s := &op.Summary
	r := &wire.StatusResult{
		Signer: op.Signer, Next: s.Next, Floor: s.Floor,
		Held: s.Held, Unknown: s.Unknown, Released: s.Released, Consumed: s.Consumed,
		FencingToken: s.Lease.Token, Version: s.Version, Engine: wire.EngineReliable,
	}
	if s.Performance {
		r.Engine = wire.EnginePerformance
	}
	if s.LowestHeld >= 0 && s.Held > 0 {
		r.LowestHeld = &s.LowestHeld
	}
	if s.Lease.Held(s.Now) {
		until := wire.Time(s.Lease.ExpiresAt)
		r.Owner, r.OwnerURL, r.LeaseUntil = clip(s.Lease.Holder.Node), clip(s.Lease.URL), &until
	}
	if said := op.Said; said != nil {
		r.Chain = chainStatus(said.State, said.Partial)
	} else if ask := c.srv.cfg.ChainStatus; ask != nil {
		r.Chain = chainStatus(ask(c.srv.life, op.Signer, s.Next), false)
	}
	return r
}

// chainStatus is what a chain says of a signer; nil: nothing.
func chainStatus(st *nonce.ChainState, partial bool) *wire.ChainStatus {
	if st == nil {
		return nil
	}
	r := &wire.ChainStatus{Head: st.Head, Mined: st.Mined, Claimed: st.Claimed, Window: st.Window, Stopped: st.Stopped, Partial: partial}
	if st.FinalKnown {
		r.Final = &st.Final
	}
	if is := st.Trouble; is != nil {
		switch is.Kind {
		case nonce.WatchGap:
			r.Gap = events.Gap(is)
		case nonce.WatchStuck:
			r.Stuck = events.Gap(is)
		case nonce.WatchDropped:
			r.Dropped = events.Gap(is)
		}
	}
	return r
}

// infoResult is what a gateway says of itself and of other nodes, cut to the bounds
// of its reservation.
func infoResult(info wire.InfoResult) *wire.InfoResult {
	shown := info.Nodes[:min(len(info.Nodes), wire.MaxNodes)]
	info.Nodes = make([]wire.NodeInfo, len(shown))
	for i, n := range shown {
		n.Node, n.URL, n.Mode, n.State = clip(n.Node), clip(n.URL), clipTo(n.Mode, maxWord), clipTo(n.State, maxWord)
		info.Nodes[i] = n
	}
	return &info
}

// listResult is a page as far as there is room for it: rows can be wider than what is
// reserved for each, and then the page ends sooner.
func (c *conn) listResult(op *nonce.Op) *wire.ListResult {
	page := &op.Page
	r := &wire.ListResult{Allocations: make([]wire.Allocation, 0, len(page.Rows))}
	var words []string
	if said := op.Said; said != nil {
		words, r.Partial = make([]string, len(page.Rows)), said.Partial
		for i := range page.Rows {
			words[i] = said.Word(page.Rows[i].Nonce, page.Rows[i].Attempt)
		}
	} else if ask := c.srv.cfg.ChainStates; ask != nil {
		words = ask(op.Signer, page.Rows)
	}
	if op.ChainOnly {
		return wordsResult(page.Rows, words)
	}
	room := listBytes(op) - fixedBytes
	for i := range page.Rows {
		row := &page.Rows[i]
		a := allocationOf(row)
		if !op.WithHolders && row.Holder != c.asker {
			a.RequestID = "" // words of another principal, as is a reason that is none of ours
			if !nonce.IsOwnReason(a.Reason) {
				a.Reason = ""
			}
		}
		switch {
		case row.Holder == 0:
		case row.Holder == c.asker:
			a.Holder = c.principal()
		default:
			a.Holder = clipTo(op.Holders[row.Holder], 2*maxPrincipal)
		}
		if i < len(words) {
			a.Chain = clipTo(words[i], maxWord)
		}
		room -= bytesOf(&a)
		if room < 0 {
			r.NextFrom = &row.Nonce
			return r
		}
		r.Allocations = append(r.Allocations, a)
	}
	if page.NextFrom >= 0 {
		r.NextFrom = &page.NextFrom
	}
	return r
}

// wordsResult is what a chain says of nonces, for another node.
func wordsResult(rows []nonce.Row, words []string) *wire.ListResult {
	r := &wire.ListResult{Allocations: make([]wire.Allocation, 0, len(words))}
	for i, word := range words {
		if word != "" {
			r.Allocations = append(r.Allocations, wire.Allocation{Nonce: rows[i].Nonce, Attempt: rows[i].Attempt, Chain: clipTo(word, maxWord)})
		}
	}
	return r
}

func allocationOf(row *nonce.Row) wire.Allocation {
	a := wire.Allocation{
		Nonce: row.Nonce, Status: wordOf(row.Status, row.Unknown()), Attempt: row.Attempt,
		TxHash: row.TxHash.String(), Reason: row.Reason, RequestID: row.RequestID, Reissued: reissued(row.Earlier),
	}
	if n := row.Replaced.Len(); n > 0 {
		a.TxHashes = append(make([]string, 0, n+1), a.TxHash)
		for i := n - 1; i >= 0; i-- { // a row has the oldest first
			a.TxHashes = append(a.TxHashes, row.Replaced.At(i).String())
		}
	}
	if !row.UpdatedAt.IsZero() {
		at := wire.Time(row.UpdatedAt)
		a.UpdatedAt = &at
	}
	if row.Status == nonce.Held {
		until := wire.Time(row.HeldUntil)
		a.HeldUntil = &until
	}
	return a
}
