package verify_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"noncegate/scripts/loadtest/target"
	"noncegate/wire"
)

// fakeGateway is a gateway that keeps the rules, but for the fault that a test
// plants. It knows no deadlines.
type fakeGateway struct {
	testing.TB
	fault fault

	mu      sync.Mutex // guards what follows
	signers map[string]*fakeSigner
	struck  int // chances to commit the fault
	repeats int // of request ids
}

// fault is what a fake gateway does wrong, at every twentieth chance.
type fault string

const (
	none              fault = ""
	handsOutTwice     fault = "hands a nonce out twice"
	losesARow         fault = "loses the row of a nonce it handed out"
	skipsANonce       fault = "leaves a nonce out that nobody was handed"
	setsAttemptBack   fault = "sets the attempt of a nonce back"
	forgetsAMark      fault = "acknowledges a mark that it does not keep"
	marksAnother      fault = "keeps another hash than it acknowledged"
	reusesAUsed       fault = "hands a used nonce out again"
	answersOther      fault = "answers a repeated request id by another nonce"
	refusesRepeat     fault = "refuses a repeated request id whose nonce is held"
	heldThoughEnded   fault = "answers a repeated request id as held though it was marked"
	countsWrong       fault = "counts a held nonce as consumed"
	sumsWrong         fault = "counts one consumed nonce too few"
	listsBeyond       fault = "lists a nonce that is not below next"
	conflictsOnOthers fault = "refuses a repeated request id for what another got"
)

type fakeSigner struct {
	rows     []wire.Allocation // by nonce
	version  int64
	requests map[string]wire.NonceAttempt
	lost     map[int64]bool
}

func startFake(t testing.TB, f fault) (g *fakeGateway, url string) {
	g = &fakeGateway{TB: t, fault: f, signers: make(map[string]*fakeSigner)}
	return g, target.Serve(t, func(c *target.Conn, _ int, message []byte) error { return c.Reply(string(g.answer(message))) })
}

type params struct {
	Signer    string
	Nonce     int64
	Attempt   int64
	TxHash    string
	RequestID string `json:"requestId"`
	From      int64
	Limit     int
}

func (g *fakeGateway) answer(message []byte) []byte {
	var call struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	var p params
	if json.Unmarshal(message, &call) != nil || json.Unmarshal(call.Params, &p) != nil {
		g.Errorf("request %s", message)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.signers[p.Signer]
	if s == nil {
		s = &fakeSigner{requests: make(map[string]wire.NonceAttempt), lost: make(map[int64]bool)}
		g.signers[p.Signer] = s
	}
	result, refusal := g.do(call.Method, s, &p)
	if refusal != nil {
		return wire.AppendError(nil, call.ID, refusal)
	}
	reply, err := wire.AppendResult(nil, call.ID, result)
	if err != nil {
		g.Error(err)
	}
	return reply
}

func (g *fakeGateway) do(method string, s *fakeSigner, p *params) (any, *wire.Error) {
	switch method {
	case wire.MethodAllocate:
		return g.allocate(s, p)
	case wire.MethodMarkUsed, wire.MethodMarkRecyclable:
		return g.mark(s, p, method == wire.MethodMarkUsed)
	case wire.MethodStatus:
		return g.status(s, p), nil
	}
	return g.list(s, p), nil
}

func (g *fakeGateway) strikes(f fault) bool {
	if g.fault != f {
		return false
	}
	g.struck++
	return g.struck%20 == 0
}

// strikesRepeat is strikes for a repeated request id, at every third chance.
func (g *fakeGateway) strikesRepeat(f fault) bool { return g.fault == f && g.repeats%3 == 0 }

func (g *fakeGateway) allocate(s *fakeSigner, p *params) (any, *wire.Error) {
	if first, ok := s.requests[p.RequestID]; ok && p.RequestID != "" {
		return g.repeat(s, p, first)
	}
	s.version++
	if g.strikes(skipsANonce) {
		s.rows = append(s.rows, wire.Allocation{Status: wire.StatusHeld, Attempt: 1})
		s.lost[int64(len(s.rows)-1)] = true
	}
	n := slices.IndexFunc(s.rows, func(a wire.Allocation) bool { return a.Status == wire.StatusReleased })
	if used := slices.IndexFunc(s.rows, func(a wire.Allocation) bool { return a.Status == wire.StatusConsumed }); used >= 0 && g.strikes(reusesAUsed) {
		n = used
	}
	if n < 0 {
		n = len(s.rows)
		s.rows = append(s.rows, wire.Allocation{Nonce: int64(n)})
	}
	row := &s.rows[n]
	row.Nonce, row.Status, row.TxHash = int64(n), wire.StatusHeld, ""
	row.Attempt++
	given := wire.NonceAttempt{Nonce: row.Nonce, Attempt: row.Attempt}
	switch {
	case n > 0 && g.strikes(handsOutTwice):
		given = wire.NonceAttempt{Nonce: 0, Attempt: 1}
	case g.strikes(losesARow):
		s.lost[given.Nonce] = true
	}
	if p.RequestID != "" {
		s.requests[p.RequestID] = given
	}
	return handedOut(p, given), nil
}

func handedOut(p *params, given wire.NonceAttempt) *wire.AllocateResult {
	return &wire.AllocateResult{Signer: p.Signer, Nonce: given.Nonce, Attempt: given.Attempt, HoldMs: time.Hour.Milliseconds()}
}

func (g *fakeGateway) repeat(s *fakeSigner, p *params, first wire.NonceAttempt) (any, *wire.Error) {
	row := s.rows[first.Nonce]
	held := row.Status == wire.StatusHeld && row.Attempt == first.Attempt
	g.repeats++
	switch {
	case g.strikesRepeat(answersOther):
		return handedOut(p, wire.NonceAttempt{Nonce: first.Nonce + 1, Attempt: 1}), nil
	case held && g.strikesRepeat(refusesRepeat):
		return nil, ended(wire.HoldState{Nonce: first.Nonce, Attempt: first.Attempt, Status: row.Status})
	case g.strikesRepeat(conflictsOnOthers):
		return nil, ended(wire.HoldState{Nonce: first.Nonce + 1, Attempt: 1, Status: row.Status})
	case held, g.strikesRepeat(heldThoughEnded):
		return handedOut(p, first), nil
	}
	return nil, ended(wire.HoldState{Nonce: first.Nonce, Attempt: row.Attempt, Status: row.Status})
}

func ended(state wire.HoldState) *wire.Error {
	e := wire.Errorf(wire.CodeConflict, "the hold of this requestId has ended")
	e.Data.Nonces = []wire.HoldState{state}
	return e
}

func (g *fakeGateway) mark(s *fakeSigner, p *params, used bool) (any, *wire.Error) {
	row := &s.rows[p.Nonce]
	if row.Attempt != p.Attempt || row.Status == wire.StatusConsumed {
		return nil, wire.Errorf(wire.CodeConflict, "the attempt is not the nonce's current one")
	}
	s.version++
	result := &wire.MarkResult{Signer: p.Signer, Nonce: p.Nonce, Attempt: p.Attempt, Status: wire.StatusReleased}
	if used {
		result.Status, result.TxHash = wire.StatusConsumed, p.TxHash
	}
	if used && g.strikes(forgetsAMark) {
		return result, nil
	}
	row.Status, row.TxHash = result.Status, result.TxHash
	if used && g.strikes(marksAnother) {
		row.TxHash = fmt.Sprintf("0x%064x", 1)
	}
	return result, nil
}

func (g *fakeGateway) status(s *fakeSigner, p *params) *wire.StatusResult {
	st := &wire.StatusResult{Signer: p.Signer, Next: int64(len(s.rows)), Version: s.version}
	for _, row := range s.rows {
		switch row.Status {
		case wire.StatusHeld:
			st.Held++
		case wire.StatusReleased:
			st.Released++
		default:
			st.Consumed++
		}
	}
	if g.fault == countsWrong && st.Held > 0 {
		st.Held, st.Consumed = st.Held-1, st.Consumed+1
	}
	if g.fault == sumsWrong && st.Consumed > 0 {
		st.Consumed--
	}
	return st
}

func (g *fakeGateway) list(s *fakeSigner, p *params) *wire.ListResult {
	page := &wire.ListResult{Allocations: []wire.Allocation{}}
	rows := s.rows
	if g.fault == listsBeyond {
		rows = append(slices.Clone(rows), wire.Allocation{Nonce: int64(len(rows)), Status: wire.StatusHeld, Attempt: 1})
	}
	for i, row := range rows[min(p.From, int64(len(rows))):] {
		if i == cmp.Or(p.Limit, wire.DefaultListLimit) {
			next := p.From + int64(i)
			page.NextFrom = &next
			break
		}
		if s.lost[row.Nonce] && row.Nonce > 0 {
			continue
		}
		if g.fault == setsAttemptBack {
			row.Attempt = 1
		}
		page.Allocations = append(page.Allocations, row)
	}
	return page
}
