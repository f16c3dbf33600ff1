package chaintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// job is one call of a message. Its owner is whoever runs the exchange.
type job struct {
	id     json.RawMessage // the client's; nil: a call that wants no answer
	method string
	params json.RawMessage
	rule   *Rule // that it meets; nil: none

	sent  uint64 // the id it is forwarded with; 0: it is not forwarded, or wants no answer
	local *answer
	edits []func(j *job, a *answer)
}

// answer is a JSON-RPC answer.
type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

type request struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params,omitempty"`
}

// exchange is a client's message and what becomes of it: before, then local or frame,
// then after.
type exchange struct {
	p     *Proxy
	batch bool
	jobs  []*job
}

// parse reads a message and finds out what each of its calls meets.
func (p *Proxy) parse(message []byte) (*exchange, error) {
	ex := &exchange{p: p}
	var calls []request
	trimmed := bytes.TrimSpace(message)
	var err error
	if ex.batch = len(trimmed) > 0 && trimmed[0] == '['; ex.batch {
		err = json.Unmarshal(trimmed, &calls)
	} else {
		calls = make([]request, 1)
		err = json.Unmarshal(trimmed, &calls[0])
	}
	if err == nil && len(calls) == 0 {
		err = errors.New("an empty batch")
	}
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		j := &job{id: c.ID, method: c.Method, params: c.Params}
		j.rule = p.match(c.Method, c.Params)
		if j.rule != nil && j.rule.fault.replace != nil {
			j.local = j.rule.fault.replace(j)
		}
		if j.rule != nil && j.rule.fault.edit != nil {
			j.edits = append(j.edits, func(j *job, a *answer) {
				if a.Error == nil {
					a.Result = j.rule.fault.edit(a.Result)
				}
			})
		}
		ex.jobs = append(ex.jobs, j)
	}
	p.mu.Lock()
	p.messages++
	view := p.view
	p.mu.Unlock()
	if view != nil {
		for _, j := range ex.jobs {
			if j.local == nil {
				view.bend(p, j)
			}
		}
	}
	return ex, nil
}

// delayed reports whether a call of the exchange is delayed.
func (ex *exchange) delayed() bool {
	return slices.ContainsFunc(ex.jobs, func(j *job) bool { return j.rule != nil && j.rule.fault.delay > 0 })
}

// wait returns once nothing delays the exchange any more, or false when the proxy is closed.
func (ex *exchange) wait(ctx context.Context) bool {
	for _, j := range ex.jobs {
		if j.rule != nil && j.rule.fault.delay > 0 && !pause(ctx, j.rule.fault.delay) {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// local reports whether nothing is to be forwarded, and what the client gets then.
func (ex *exchange) local() (*outcome, bool) {
	for _, j := range ex.jobs {
		if j.rule != nil && j.rule.fault.local {
			j.rule.meet()
			return ex.fill(j.rule.fault.whole, j), true
		}
	}
	for _, j := range ex.jobs {
		if j.local == nil {
			return nil, false
		}
	}
	return ex.assemble(nil), true
}

// fill gives a stream the id that it answers.
func (ex *exchange) fill(o *outcome, j *job) *outcome {
	if o.kind != stream {
		return o
	}
	filled := *o
	filled.body = []byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"0x`, orNull(j.id)))
	return &filled
}

// frame is what is forwarded, with ids that next gives.
func (ex *exchange) frame(next func() uint64) ([]byte, error) {
	calls := make([]request, 0, len(ex.jobs))
	for _, j := range ex.jobs {
		if j.local != nil {
			continue
		}
		c := request{Version: "2.0", Method: j.method, Params: j.params}
		if j.id != nil {
			j.sent = next()
			c.ID = json.RawMessage(fmt.Sprint(j.sent))
		}
		calls = append(calls, c)
	}
	if ex.batch {
		return json.Marshal(calls)
	}
	return json.Marshal(calls[0])
}

// after is what the client gets when the node has answered.
func (ex *exchange) after(answers map[uint64]*answer) *outcome {
	for _, j := range ex.jobs {
		if j.rule != nil && j.rule.fault.whole != nil {
			j.rule.meet()
			return j.rule.fault.whole
		}
	}
	if refusal := answers[0]; refusal != nil && len(answers) == 1 {
		refusal.Version = "2.0"
		return asBody(refusal)
	}
	return ex.assemble(answers)
}

// assemble puts the answers together, in the order of the calls. An answer that the node
// left out is left out.
func (ex *exchange) assemble(answers map[uint64]*answer) *outcome {
	out := make([]*answer, 0, len(ex.jobs))
	for _, j := range ex.jobs {
		a := j.local
		if a == nil {
			a = answers[j.sent]
		}
		if j.rule != nil {
			j.rule.meet()
		}
		if a == nil || j.id == nil {
			continue
		}
		a.Version, a.ID = "2.0", j.id
		for _, edit := range j.edits {
			edit(j, a)
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil
	}
	if ex.batch {
		return asBody(out)
	}
	return asBody(out[0])
}

// asBody is v as an answer.
func asBody(v any) *outcome {
	body, err := json.Marshal(v)
	if err != nil {
		body = []byte("not JSON: " + err.Error())
	}
	return &outcome{kind: raw, body: body}
}

// readAnswers reads a node's answer by the ids that it was asked with. What has no id,
// such as a node's refusal of a whole batch, is under 0.
func readAnswers(text []byte) (map[uint64]*answer, error) {
	var list []*answer
	trimmed := bytes.TrimSpace(text)
	var err error
	if len(trimmed) > 0 && trimmed[0] == '[' {
		err = json.Unmarshal(trimmed, &list)
	} else {
		list = make([]*answer, 1)
		err = json.Unmarshal(trimmed, &list[0])
	}
	if err != nil {
		return nil, fmt.Errorf("the node answered %.200q: %w", text, err)
	}
	answers := make(map[uint64]*answer, len(list))
	for _, a := range list {
		var id uint64
		if a == nil || json.Unmarshal(a.ID, &id) != nil {
			continue
		}
		answers[id] = a
	}
	return answers, nil
}

func orNull(id json.RawMessage) json.RawMessage {
	if id == nil {
		return json.RawMessage("null")
	}
	return id
}
