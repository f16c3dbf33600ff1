package endpoint

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// send answers eth_sendRawTransaction.
func (e *Endpoint) send(ctx context.Context, c *relay.Call) relay.Answer {
	list, bad := elements(c.Params, 1, 1)
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	s, bad := e.sending(c, list[0])
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	return s.run(ctx)
}

// sending is one transaction on its way. It belongs to the goroutine of its call.
type sending struct {
	e      *Endpoint
	call   *relay.Call
	raw    []byte
	tx     chain.Tx
	signer string
	line   *line

	was     nonce.SentState // of the same transaction, before
	attempt int64           // of the nonce, once it is recorded
	over    nonce.TxHash    // the transaction that it replaces
	old     bool            // the same was recorded before, and its nonce is CONSUMED
	earlier *nonce.Earlier  // the hold of the nonce before that was not accounted for
}

// sending decodes a transaction and looks whether the client may send it.
func (e *Endpoint) sending(c *relay.Call, param []byte) (*sending, *wire.Error) {
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
		return nil, invalid("transaction", "%s; nothing was sent", clip(err.Error()+e.elsewhere(err)))
	}
	s.signer = e.nodes.ID() + ":" + s.tx.Account
	c.About(s.signer, s.tx.Nonce)
	if !c.May(access.RightMark, s.signer) && !c.May(access.RightMarkAny, s.signer) {
		return nil, c.Forbidden(access.RightMark)
	}
	return s, c.Charge(s.signer, false)
}

// elsewhere says where a transaction of another chain is to be sent to.
func (e *Endpoint) elsewhere(err error) string {
	other, ok := errors.AsType[*ethereum.OtherChainError](err)
	if !ok {
		return ""
	}
	path := Prefix + strconv.FormatUint(other.Is, 10)
	if slices.Contains(e.paths, path) {
		return "; send it to " + path + ", or sign it for chain " + strconv.FormatUint(other.Want, 10)
	}
	return "; this gateway has no " + path
}

// run keeps the transaction, records it, gives it to the nodes, and follows what they say. Once
// it is recorded all is done, whether the client still waits for it or not.
func (s *sending) run(ctx context.Context) relay.Answer {
	s.line = s.e.lines.enter(s.signer)
	defer s.e.lines.leave(s.line)
	if !s.line.begin(ctx, s.tx, s.call.Pass) {
		return relay.Answer{Err: s.failed(errGone())}
	}
	defer s.line.end(s.tx)
	s.awaitChain(ctx)
	if err := s.authorized(ctx); err != nil {
		return relay.Answer{Err: s.failed(err)}
	}
	if err := s.keep(ctx); err != nil {
		return relay.Answer{Err: s.failed(err)}
	}
	if err := s.record(ctx); err != nil {
		if err.Data.Outcome != wire.OutcomeUnknown { // else it is dropped when that is known
			s.unkeep()
		}
		return s.refused(ctx, err)
	}
	s.call.Pass()
	return s.settle(s.forward(context.WithoutCancel(ctx)))
}

// failed counts what was not sent.
func (s *sending) failed(err *wire.Error) *wire.Error {
	s.e.metrics.notSent(err)
	return err
}

// errGone answers a client that has left; it is not sent.
func errGone() *wire.Error {
	return unavailable(wire.OutcomeNone, 0, "the connection has ended; nothing was sent")
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

// storeTime bounds one call of the store of transactions.
const storeTime = 5 * time.Second

// keep stores the transaction before it is recorded: a gateway that ends between the two leaves
// one that is not recorded, which is dropped; one that ends later, one that is offered again.
func (s *sending) keep(ctx context.Context) *wire.Error {
	if s.e.full() {
		return errFull(wire.StageForward, "as many transactions are under way as may be")
	}
	below := int64(0)
	if st, ok := s.e.chains.State(s.signer); ok {
		below = min(st.Mined, s.tx.Nonce)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	var err error
	s.was, err = s.e.sent.KeepSent(ctx, nonce.Sent{
		Signer: s.signer, Nonce: s.tx.Nonce, Hash: s.tx.Hash, Payment: s.tx.Payment, Raw: s.raw,
	}, below, firstLook)
	switch {
	case errors.Is(err, nonce.ErrSentFull):
		return errFull(wire.StageQuota, nonce.ErrSentFull.Error())
	case err != nil:
		s.e.seldom.warn(s.e.log, "a transaction could not be stored, and was not sent",
			"signer", s.signer, "nonce", s.tx.Nonce, "error", err)
		return errStore()
	}
	return nil
}

// errStore says that the store could not be asked.
func errStore() *wire.Error {
	return unavailable(wire.OutcomeNone, retryUnavailable, "the store is out of reach; nothing was sent")
}

// errFull refuses a transaction for which there is no room in the store.
func errFull(stage, sentence string) *wire.Error {
	return busy(stage, laterFor.Milliseconds(), "%s; nothing was sent, wait until some are mined", sentence)
}

// unkeep forgets a transaction that was not recorded, unless an earlier try of it is kept.
func (s *sending) unkeep() {
	switch s.was {
	case 0:
		s.e.dropSent(s.signer, s.tx.Nonce, s.tx.Hash)
	case nonce.SentRefused:
		s.set(nonce.SentRefused, lookSettled)
	}
}

// set says what became of the transaction.
func (s *sending) set(state nonce.SentState, wait time.Duration) {
	s.e.setSent(s.signer, s.tx.Nonce, s.tx.Hash, state, wait)
}

func (e *Endpoint) setSent(signer string, n int64, hash chain.Hash, state nonce.SentState, wait time.Duration) {
	e.store("settle", signer, func(ctx context.Context) error { return e.sent.SettleSent(ctx, signer, n, hash, state, wait) })
}

// dropSent forgets a transaction.
func (e *Endpoint) dropSent(signer string, n int64, hash chain.Hash) {
	e.store("drop", signer, func(ctx context.Context) error { return e.sent.DropSent(ctx, signer, n, hash) })
}

// store changes what is kept of a transaction. Where that fails, the transaction is looked at
// again when its time comes, as it was.
func (e *Endpoint) store(doing, signer string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	if err := do(ctx); err != nil {
		e.seldom.warn(e.log, "what became of a transaction was not stored; it is looked at again",
			"signer", signer, "doing", doing, "error", err)
	}
}

// forward gives the transaction to the nodes. One that they refuse because a lower nonce
// is missing is given to them again while such a one is on its way; one that reached no node,
// for a short while.
func (s *sending) forward(ctx context.Context) chain.Verdict {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	for began := time.Now(); ; {
		changed, lower := s.line.changed(), s.line.lower(s.tx)
		v := s.e.nodes.Send(ctx, s.raw)
		switch {
		case v.Missing && v.Class == chain.Refused && (lower || s.line.lower(s.tx)):
			// One before it was on its way, and may have arrived by now.
			select {
			case <-changed:
			case <-ctx.Done():
				return v
			}
		case v.Class == chain.NotReached && !v.Later && time.Since(began)+nodesPause <= s.e.cfg.NodesWait && pause(ctx, nodesPause):
		default:
			return v
		}
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

// sendSync answers eth_sendRawTransactionSync (EIP-7966): it sends, and waits for the
// receipt.
func (e *Endpoint) sendSync(ctx context.Context, c *relay.Call) relay.Answer {
	list, bad := elements(c.Params, 1, 2)
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	wait := receiptWait
	if len(list) == 2 {
		wait, bad = readWait(list[1])
		if bad != nil {
			return relay.Answer{Err: bad}
		}
	}
	s, bad := e.sending(c, list[0])
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	a := s.run(ctx)
	if a.Result == nil {
		return a
	}
	return e.receipt(ctx, c, s.tx.Hash, wait)
}

// receiptWait is how long eth_sendRawTransactionSync waits for a receipt when it does not say, and
// maxReceiptWait how long at most.
const (
	receiptWait    = 20 * time.Second
	maxReceiptWait = time.Minute
)

// readWait reads the time that a client wants to wait, in milliseconds.
func readWait(param []byte) (time.Duration, *wire.Error) {
	if string(param) == "null" {
		return receiptWait, nil
	}
	ms, ok := number(param)
	if !ok || ms == 0 {
		return 0, invalid("timeout", "must be a number of milliseconds above 0")
	}
	return time.Duration(min(ms, uint64(maxReceiptWait.Milliseconds()))) * time.Millisecond, nil
}

// codeReceiptTimeout is the code of EIP-7966 for a receipt that did not come in time.
const codeReceiptTimeout = 4

// receipt asks for a receipt until there is one, or wait is over. What has been sent is
// not undone by an error of these questions. All calls that wait for one transaction share the
// questions of one of them; when that one ends, another one asks.
func (e *Endpoint) receipt(ctx context.Context, c *relay.Call, hash chain.Hash, wait time.Duration) relay.Answer {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoReceipt)
	defer cancel()
	for ctx.Err() == nil {
		asked := e.receipts.DoChan(hash.String(), func() (answer any, _ error) { // which ends with ctx
			defer func() { // nothing above it recovers: a panic would end the process
				if v := recover(); v != nil {
					c.Panicked("a question for a receipt", v, c.Method)
					answer = relay.Answer{Err: errOnItsWay("the gateway met an error of its own")}
				}
			}()
			a := e.ask(ctx, methodReceipt, []byte(`["`+hash.String()+`"]`))
			if len(a.Result) == 0 || string(a.Result) == "null" {
				a = relay.Answer{}
				pause(ctx, e.cfg.ReceiptEvery)
			}
			return a, nil
		})
		select {
		case got := <-asked:
			if a := got.Val.(relay.Answer); a.Result != nil || a.Err != nil {
				return a
			}
		case <-ctx.Done():
		}
	}
	message := "The transaction was added to the transaction pool but wasn't processed in " + wait.String()
	if !errors.Is(context.Cause(ctx), errNoReceipt) { // the gateway stops, or the client has gone
		message = "The transaction was added to the transaction pool; the gateway does not wait for its receipt any longer"
	}
	return relay.Answer{Foreign: &relay.Foreign{Code: codeReceiptTimeout, Data: []byte(`"` + hash.String() + `"`), Message: message}}
}

var errNoReceipt = errors.New("there is no receipt yet")
