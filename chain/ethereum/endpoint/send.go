package endpoint

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/ws"
)

// send answers eth_sendRawTransaction.
func (e *Endpoint) send(ctx context.Context, c *ws.Call) ws.Answer {
	list, bad := elements(c.Params, 1, 1)
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	s, bad := e.sending(c, list[0])
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	return s.run(ctx)
}

// sending is one transaction on its way. It belongs to the goroutine of its call.
type sending struct {
	e      *Endpoint
	call   *ws.Call
	raw    []byte
	tx     chain.Tx
	signer string
	line   *line

	attempt int64 // of the nonce, once it is recorded
}

// sending decodes a transaction and looks whether who sends it may.
func (e *Endpoint) sending(c *ws.Call, param []byte) (*sending, *wire.Error) {
	spelled, ok := text(param)
	if !ok {
		return nil, invalid("transaction", "must be a string")
	}
	digits, prefixed := strings.CutPrefix(spelled, "0x")
	raw, err := hex.DecodeString(digits)
	if !prefixed || err != nil {
		return nil, invalid("transaction", "must be 0x and an even number of hexadecimal digits")
	}
	s := &sending{e: e, call: c, raw: raw}
	if s.tx, err = e.nodes.Decode(raw); err != nil {
		return nil, invalid("transaction", "%s; nothing was sent", clip(err.Error()))
	}
	s.signer = e.nodes.ID() + ":" + s.tx.Account
	c.About(s.signer, s.tx.Nonce)
	if !c.May(access.RightMark, s.signer) && !c.May(access.RightMarkAny, s.signer) {
		return nil, c.Forbidden(access.RightMark)
	}
	return s, c.Charge(s.signer)
}

// run records the transaction, gives it to the nodes, and follows what they say. Once it
// is recorded all is done, whether somebody waits for it or not.
func (s *sending) run(ctx context.Context) ws.Answer {
	s.line = s.e.lines.enter(s.signer)
	defer s.e.lines.leave(s.line)
	if !s.line.begin(ctx, s.tx, s.call.Pass) {
		return ws.Answer{Err: s.failed(errGone())}
	}
	defer s.line.end(s.tx)
	s.awaitChain(ctx)
	if err := s.authorized(ctx); err != nil {
		return ws.Answer{Err: s.failed(err)}
	}
	if err := s.record(ctx); err != nil {
		return ws.Answer{Err: s.failed(err)}
	}
	s.call.Pass()
	return s.settle(s.forward(context.WithoutCancel(ctx)))
}

// failed counts what was not sent.
func (s *sending) failed(err *wire.Error) *wire.Error {
	s.e.metrics.notSent(err)
	return err
}

// errGone is for nobody: whoever asked is gone.
func errGone() *wire.Error {
	err := wire.Errorf(wire.CodeUnavailable, "the connection has ended; nothing was sent")
	err.Data.Outcome = wire.OutcomeNone
	return err
}

// awaitChain waits for what the chain says of a signer that is new here.
func (s *sending) awaitChain(ctx context.Context) {
	ready := make(chan struct{})
	if s.e.chains.Ready(s.signer, s.e.cfg.ReadyWait, func() { close(ready) }) {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

const (
	// recordTries is how often a record is tried that is refused although nothing speaks
	// against it.
	recordTries = 4
	fencedPause = 50 * time.Millisecond
)

// record puts the hash of the transaction into the record of its nonce. nil: it is
// committed, and the transaction may be sent. Nonces ahead of the next one wait for those
// before them.
func (s *sending) record(ctx context.Context) *wire.Error {
	enough := time.NewTimer(s.e.cfg.OrderWait)
	defer enough.Stop()
	last := false
	for tries := 1; ; tries++ {
		changed := s.line.changed()
		op := s.recordOp()
		err := s.call.Do(op)
		if err == nil {
			s.attempt = op.Attempt
			s.line.tell()
			return nil
		}
		when := s.retryable(ctx, err, op.Take)
		switch {
		case when == retryNever, when == retryNow && tries >= recordTries, when == retryLater && last:
			return s.explain(ctx, err)
		case when == retryNow:
			pause(ctx, fencedPause)
		default:
			s.call.Pass() // those that it waits for may be behind it on this connection
			last = s.awaitOthers(ctx, changed, enough.C)
			tries = 0
		}
		if ctx.Err() != nil {
			return errGone()
		}
	}
}

// lookEvery is how often it is looked whether a transaction's turn has come: those before
// it may have come to another node of the gateway.
const lookEvery = 100 * time.Millisecond

// awaitOthers waits until it may be the transaction's turn. last: it has waited enough.
func (s *sending) awaitOthers(ctx context.Context, changed <-chan struct{}, enough <-chan time.Time) (last bool) {
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	select {
	case <-changed:
	case <-look.C:
	case <-ctx.Done():
	case <-enough:
		return true
	}
	return false
}

// retry is whether, and when, a record that was refused may succeed when it is tried again.
type retry uint8

const (
	retryNever retry = iota
	retryNow         // the signer has just moved, or it is the transaction's turn by now
	retryLater       // when others have been recorded
)

func (s *sending) retryable(ctx context.Context, err *wire.Error, take bool) retry {
	switch {
	case err.Code == wire.CodeFenced:
		return retryNow
	case err.Code != wire.CodeConflict || !take:
		return retryNever
	}
	next, failed := s.e.next(ctx, s.call, s.signer, s.tx.Account)
	if failed != nil || s.tx.Nonce < next {
		return retryNever
	}
	row, there, failed := s.row(s.signer, s.tx.Nonce)
	switch {
	case failed != nil || there && row.Status != nonce.Released:
		return retryNever
	case s.tx.Nonce == next:
		return retryNow
	}
	return retryLater
}

func (s *sending) recordOp() *nonce.Op {
	return &nonce.Op{
		Kind: nonce.KindMarkSigned, Signer: s.signer, Nonce: s.tx.Nonce, TxHash: s.tx.Hash, Forwarded: true,
		Take:    s.e.cfg.Take && s.call.May(access.RightAllocate, s.signer),
		MarkAny: s.call.May(access.RightMarkAny, s.signer), MaxOpen: s.call.MaxOpen(),
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	wake := time.NewTimer(d)
	defer wake.Stop()
	select {
	case <-wake.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// forward gives the transaction to the nodes. One that they refuse because a lower nonce
// is missing is given to them again while such a one is on its way.
func (s *sending) forward(ctx context.Context) chain.Verdict {
	ctx, cancel := context.WithTimeout(ctx, s.e.cfg.SendTimeout)
	defer cancel()
	for {
		changed, lower := s.line.changed(), s.line.lower(s.tx)
		v := s.e.nodes.Send(ctx, s.raw)
		if v.Class != chain.Free || !v.Missing || !lower && !s.line.lower(s.tx) {
			return v
		}
		// One before it was on its way, and may have arrived by now.
		select {
		case <-changed:
		case <-ctx.Done():
			return v
		}
	}
}

// settle does what follows from the nodes' answer, and makes it the client's.
func (s *sending) settle(v chain.Verdict) ws.Answer {
	s.e.metrics.sent(v.Class)
	switch v.Class {
	case chain.InPool:
		s.used()
		s.tell()
		return result(s.tx.Hash.String())
	case chain.Used:
		if s.mined() {
			s.used()
			return result(s.tx.Hash.String())
		}
	case chain.Unknown:
		s.used()
		if v.Code == 0 || v.Code == wire.CodeInternal {
			return ws.Answer{Err: errOnItsWay(v.Message)}
		}
	case chain.Free:
		if !s.e.chains.Stopped(s.signer) { // else the nodes may lie, and one may have it: the hold stays its holder's
			s.giveBack(v.Message)
		}
	case chain.Taken:
	}
	return ws.Answer{Foreign: &ws.Foreign{Code: v.Code, Message: v.Message, Data: v.Data}}
}

// used says that the nonce is used: a node has the transaction, or may have it. Where
// that cannot be said now, the record stands, and the hash in it says so when the hold
// ends.
func (s *sending) used() {
	s.follow(&nonce.Op{Kind: nonce.KindMarkUsed, Attempt: s.attempt, TxHash: s.tx.Hash})
}

// giveBack gives the nonce back: no node has taken the transaction, nor will.
func (s *sending) giveBack(why string) {
	s.follow(&nonce.Op{Kind: nonce.KindMarkRecyclable, Attempt: s.attempt, TxHash: s.tx.Hash, Reason: reason(why)})
	s.line.tell()
}

func (s *sending) follow(op *nonce.Op) {
	op.Signer, op.Nonce, op.Forwarded, op.MarkAny = s.signer, s.tx.Nonce, op.Kind == nonce.KindMarkRecyclable, s.call.May(access.RightMarkAny, s.signer)
	err := s.call.Finish(op)
	if err != nil && err.Code == wire.CodeConflict && op.Kind == nonce.KindMarkRecyclable {
		return // a try before may have left it somewhere, so that it is used
	}
	if err != nil {
		s.e.metrics.loose.Inc()
		s.e.log.Warn("a transaction was sent, and what became of it was not recorded; it is when its hold ends",
			"signer", s.signer, "nonce", s.tx.Nonce, "tx", s.tx.Hash.String(), "op", op.Kind.String(), "error", err)
	}
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

// mined reports whether this very transaction has used its nonce.
func (s *sending) mined() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.e.cfg.ReadTimeout)
	defer cancel()
	found, err := s.e.nodes.Lookup(ctx, []chain.Ask{{Account: s.tx.Account, Nonce: s.tx.Nonce, Hashes: []chain.Hash{s.tx.Hash}}})
	return err == nil && len(found) == 1 && found[0].Seen == chain.Mined && found[0].Tx == s.tx.Hash
}

// tell says to who subscribed that a node has the transaction.
func (s *sending) tell() {
	sink := s.e.events.Sink
	if sink == nil || !sink.Watched(s.signer) {
		return
	}
	sink.Publish(s.e.events.WorkerIndex(s.signer), false, []nonce.Event{{
		Type: nonce.EventSent, Signer: s.signer, Nonce: s.tx.Nonce, Attempt: s.attempt, TxHash: s.tx.Hash, At: time.Now(),
		Version: s.e.chains.Version(s.signer),
	}})
}

// errOnItsWay is the answer where nobody knows whether a node has the transaction. It is
// no internal error: clients send again what met one of these, and do not say so.
func errOnItsWay(said string) *wire.Error {
	err := wire.Errorf(wire.CodeUnavailable,
		"the transaction may be on its way: send the same raw transaction again, and never the same payment with another nonce (%s)", clip(cmp.Or(said, "no node has answered")))
	err.Data.Outcome, err.Data.RetryAfterMs = wire.OutcomeUnknown, retryUnavailable
	return err
}

// sendSync answers eth_sendRawTransactionSync (EIP-7966): it sends, and waits for the
// receipt.
func (e *Endpoint) sendSync(ctx context.Context, c *ws.Call) ws.Answer {
	list, bad := elements(c.Params, 1, 2)
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	wait := e.cfg.ReceiptWait
	if len(list) == 2 {
		wait, bad = e.receiptWait(list[1])
		if bad != nil {
			return ws.Answer{Err: bad}
		}
	}
	s, bad := e.sending(c, list[0])
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	a := s.run(ctx)
	if a.Result == nil {
		return a
	}
	return e.receipt(ctx, s.tx.Hash, wait)
}

// receiptWait reads the time that a client wants to wait, in milliseconds.
func (e *Endpoint) receiptWait(param []byte) (time.Duration, *wire.Error) {
	if string(param) == "null" {
		return e.cfg.ReceiptWait, nil
	}
	ms, ok := number(param)
	if !ok || ms == 0 {
		return 0, invalid("timeout", "must be a number of milliseconds above 0")
	}
	return min(time.Duration(min(ms, uint64(e.cfg.MaxReceiptWait.Milliseconds())))*time.Millisecond, e.cfg.MaxReceiptWait), nil
}

// codeReceiptTimeout is the code of EIP-7966 for a receipt that did not come in time.
const codeReceiptTimeout = 4

// receipt asks for a receipt until there is one, or wait is over. What has been sent is
// not undone by an error of these questions.
func (e *Endpoint) receipt(ctx context.Context, hash chain.Hash, wait time.Duration) ws.Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoReceipt)
	defer cancel()
	for {
		a := e.ask(ctx, methodReceipt, []byte(`["`+hash.String()+`"]`))
		if a.Err == nil && a.Foreign == nil && len(a.Result) > 0 && string(a.Result) != "null" {
			return a
		}
		if !pause(ctx, e.cfg.ReceiptEvery) {
			break
		}
	}
	message := "The transaction was added to the transaction pool but wasn't processed in " + wait.String()
	if !errors.Is(context.Cause(ctx), errNoReceipt) { // the gateway stops, or nobody listens any more
		message = "The transaction was added to the transaction pool; the gateway does not wait for its receipt any longer"
	}
	return ws.Answer{Foreign: &ws.Foreign{Code: codeReceiptTimeout, Data: []byte(`"` + hash.String() + `"`), Message: message}}
}

var errNoReceipt = errors.New("there is no receipt yet")
