package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// settle does what follows from the nodes' answer, and makes it the client's.
func (s *sending) settle(v chain.Verdict) relay.Answer {
	// A node that was not reached now may have it from a try before.
	before := s.was == nonce.SentOpen || s.was == nonce.SentTaken || v.Before
	if before && v.Unanswered && v.Class != chain.Used { // of a used nonce the nodes are asked by which first
		v.Class = chain.Unknown
	}
	s.e.metrics.sent(v.Class)
	switch v.Class {
	case chain.InPool:
		s.used()
		s.set(nonce.SentTaken, lookSettled)
		s.tell()
		return s.taken()
	case chain.Used:
		return s.usedNonce(v, before)
	case chain.Unknown:
		s.set(nonce.SentOpen, s.e.cfg.OfferAgain)
		s.e.wake()
		if s.was == nonce.SentOpen || s.was == nonce.SentTaken {
			return s.taken() // the gateway has it, and offers it to the nodes until one answers
		}
		return relay.Answer{Err: errOnItsWay(v.Message)}
	case chain.Taken:
		s.takenByAnother(before)
	case chain.NotReached:
		s.notTaken(before, true, v.Message)
		return relay.Answer{Err: errNotReached(v)}
	case chain.Free, chain.Refused:
		s.notTaken(before, v.Class == chain.Free, v.Message)
	}
	return relay.Answer{Foreign: foreign(v)}
}

// taken is the answer of a transaction that is on its way: its hash, or what a node says of one
// whose hash it has told before.
func (s *sending) taken() relay.Answer {
	if s.was == nonce.SentTaken || s.was == 0 && s.old {
		return relay.Answer{Foreign: &relay.Foreign{Code: codeKnown, Message: "already known"}}
	}
	return result(s.tx.Hash.String())
}

// codeKnown is the code with which go-ethereum says that it has a transaction already.
const codeKnown = -32000

// foreign passes on what a node said. Where waiting helps, and the node did not add anything of
// its own, the client is told for how long.
func foreign(v chain.Verdict) *relay.Foreign {
	f := &relay.Foreign{Code: v.Code, Message: v.Message, Data: v.Data}
	if v.Later && len(f.Data) == 0 {
		f.Data = []byte(`{"retryAfterMs":` + strconv.FormatInt(retryOf(v), 10) + `}`)
	}
	return f
}

// laterFor is when to try again what a node may take later, where it did not say.
const laterFor = 2 * time.Second

func retryOf(v chain.Verdict) int64 { return cmp.Or(v.RetryAfter, laterFor).Milliseconds() }

// errNotReached says that no node got the transaction. The code is the one that wallet libraries
// try again after.
func errNotReached(v chain.Verdict) *wire.Error {
	err := wire.Errorf(wire.CodeServerBusy, "")
	err.Message = fmt.Sprintf("unavailable: no node of the chain was reached, and nothing was sent (%s); send it again", clip(v.Message))
	err.Data.Reason, err.Data.Outcome, err.Data.RetryAfterMs = "unavailable", wire.OutcomeNone, retryUnavailable
	if v.Later {
		err.Data.RetryAfterMs = retryOf(v)
	}
	return err
}

// usedNonce settles a transaction whose nonce a block has used. Where one of several nodes says so,
// and another may have the transaction, it is not settled. before: an earlier try may have left it there.
func (s *sending) usedNonce(v chain.Verdict, before bool) relay.Answer {
	switch s.whoUsed() {
	case usedByThis:
		s.used()
		s.set(nonce.SentTaken, lookSettled)
		return s.taken()
	case usedByOther:
		s.keepHold("")
		s.e.dropSent(s.signer, s.tx.Nonce, s.tx.Hash)
	case usedByUnknown:
		if v.Disputed || before && v.Unanswered {
			s.set(nonce.SentOpen, s.e.cfg.OfferAgain)
			s.e.wake()
			return relay.Answer{Err: errOnItsWay(v.Message)}
		}
	}
	return relay.Answer{Foreign: foreign(v)}
}

// notTaken settles a transaction that no node has. Without a try before the nonce goes back if it
// is free for others; else it stays with its sender.
func (s *sending) notTaken(before, free bool, why string) {
	switch {
	case s.e.chains.Stopped(s.signer), before:
		// The nodes may lie, or one may have it all the same: it stays recorded.
		s.set(nonce.SentRefused, lookSettled)
	case s.over != nonce.TxHash{}:
		s.keepHold(nonce.ReasonRefused)
		s.e.dropSent(s.signer, s.tx.Nonce, s.tx.Hash)
	case free && s.was == 0:
		if s.giveBack(why) {
			s.e.dropSent(s.signer, s.tx.Nonce, s.tx.Hash)
			break
		}
		s.set(nonce.SentRefused, lookSettled)
	default:
		s.keepHold(nonce.ReasonRefused)
		s.set(nonce.SentRefused, lookSettled)
	}
	s.line.tell()
}

// takenByAnother settles a transaction that nodes refused because they have another one of its
// nonce. Where that is none of ours, and no node counts it as pending, there is none.
func (s *sending) takenByAnother(before bool) {
	switch {
	case before || s.e.chains.Stopped(s.signer):
		s.set(nonce.SentOpen, lookBlocked)
		return
	case s.over != nonce.TxHash{}:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		start, err := s.e.start(ctx, s.tx.Account)
		if err == nil && max(start.Latest, start.Pending) <= s.tx.Nonce {
			s.notTaken(false, false, "")
			return
		}
	}
	s.keepHold("")
	s.e.dropSent(s.signer, s.tx.Nonce, s.tx.Hash)
}

// used says that the nonce is used: a node has the transaction. Where that cannot be said now,
// the record stands, and the hash in it says so when the hold ends.
func (s *sending) used() {
	s.follow(&nonce.Request{Kind: nonce.KindMarkUsed, Attempt: s.attempt, TxHash: s.tx.Hash})
}

// giveBack gives the nonce back, and reports whether it is: not if another gateway may have left
// the transaction with a node.
func (s *sending) giveBack(why string) bool {
	r := s.follow(&nonce.Request{Kind: nonce.KindMarkRecyclable, Attempt: s.attempt, TxHash: s.tx.Hash, Reason: reason(why)})
	return r.Status == nonce.Released
}

// keepHold takes the transaction out of the record, and leaves the hold with its sender.
func (s *sending) keepHold(why string) {
	s.follow(&nonce.Request{Kind: nonce.KindMarkRecyclable, Keep: true, Attempt: s.attempt, TxHash: s.tx.Hash, Reason: why})
}

func (s *sending) follow(mark *nonce.Request) nonce.Result {
	mark.Signer, mark.Nonce, mark.Forwarded = s.signer, s.tx.Nonce, mark.Kind == nonce.KindMarkRecyclable
	mark.MarkAny = s.call.May(access.RightMarkAny, s.signer)
	r, err := s.call.Finish(mark)
	if err != nil && err.Code == wire.CodeConflict && mark.Kind == nonce.KindMarkRecyclable {
		return r // a try before may have left it somewhere, so that it is used
	}
	if err != nil {
		s.e.metrics.loose.Inc()
		s.e.seldom.warn(s.e.log, "a transaction was sent, and what became of it was not recorded; it is when its hold ends",
			"signer", s.signer, "nonce", s.tx.Nonce, "tx", s.tx.Hash.String(), "op", mark.Kind.String(), "error", err)
	}
	return r
}

// reason is what a node said, as the reason of a nonce that was given back.
func reason(why string) string {
	const before = "refused: "
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(why, ""))
	text := before + clean
	if len(text) > nonce.MaxReasonBytes {
		text = strings.ToValidUTF8(text[:nonce.MaxReasonBytes], "")
	}
	return text
}

// usedBy is which transaction used a nonce.
type usedBy uint8

const (
	usedByUnknown usedBy = iota
	usedByThis
	usedByOther
)

// whoUsed asks the nodes, and the gateway's own record, which transaction used the nonce.
func (s *sending) whoUsed() usedBy {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	by := s.e.whoUsed(ctx, s.tx.Account, s.tx.Nonce, s.tx.Hash)
	if by != usedByUnknown {
		return by
	}
	row, there, err := rowOf(s.call, s.signer, s.tx.Nonce)
	if err != nil || !there || row.TxHash != s.tx.Hash {
		return usedByUnknown
	}
	words := s.e.chains.Words(s.signer, []nonce.Row{row})
	if row.Replaced == "" && len(words) == 1 && (words[0] == wire.ChainMined || words[0] == wire.ChainFinal) {
		return usedByThis
	}
	return usedByUnknown
}

func (e *Endpoint) whoUsed(ctx context.Context, account string, n int64, hash chain.Hash) usedBy {
	found, err := e.nodes.Lookup(ctx, []chain.Ask{{Account: account, Nonce: n, Hashes: []chain.Hash{hash}}})
	switch {
	case err != nil || len(found) != 1:
		return usedByUnknown
	case found[0].Settled == chain.Mined && found[0].SettledTx != hash:
		return usedByOther // by the word of two nodes, where there are several
	case found[0].Seen == chain.Mined && found[0].Tx == hash:
		return usedByThis
	}
	return usedByUnknown
}

// tell says to the subscribers that a node has the transaction.
func (s *sending) tell() {
	s.e.tellSent(s.signer, s.tx.Nonce, s.attempt, s.tx.Hash, s.earlier)
}

// reissued is the reason of an event of a nonce with an earlier hold that was not accounted for.
const reissued = "reissued"

func (e *Endpoint) tellSent(signer string, n, attempt int64, hash chain.Hash, was *nonce.Earlier) {
	why := ""
	if was != nil {
		why = reissued
		e.seldom.warn(e.log, "a transaction took a nonce whose former holder did not say what became of it: "+
			"should that holder's transaction appear, only one of the two is executed",
			"signer", signer, "nonce", n, "attempt", attempt, "former_attempt", was.Attempt, "former_tx", was.TxHash.String())
	}
	sink := e.events.Sink
	if sink == nil || !sink.Watched(signer) {
		return
	}
	sink.Publish(e.events.WorkerIndex(signer), false, []nonce.Event{{
		Type: nonce.EventSent, Signer: signer, Nonce: n, Attempt: attempt, TxHash: hash, Reason: why, At: time.Now(),
		Version: e.chains.Version(signer),
	}})
}

// errOnItsWay is the answer where it is not known whether a node has the transaction. It is
// no internal error: clients send again what met one of these, and do not say so.
func errOnItsWay(said string) *wire.Error {
	return unavailable(wire.OutcomeUnknown, retryUnavailable,
		"the transaction may be on its way: the gateway offers it to the nodes again; send the same raw transaction again, "+
			"or ask for its receipt, and never send the same payment with another nonce (%s)", clip(cmp.Or(said, "no node has answered")))
}
