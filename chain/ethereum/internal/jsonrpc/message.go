package jsonrpc

import (
	"encoding/json"
	"fmt"
	"strconv"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// Call is one request, and what became of it. After Do exactly one of Result, Err and
// Fail is set.
type Call struct {
	Method string
	Params json.RawMessage // an array or an object; nil: none

	Result json.RawMessage // the node's result, null included
	Err    *Error          // the node's refusal
	Fail   error           // there is no answer, and why
}

// NewCall makes a request whose parameters are an array of values. It panics on a value
// that JSON cannot say, which is a mistake in the program.
func NewCall(method string, params ...any) *Call {
	if params == nil {
		params = []any{}
	}
	raw, err := wire.Marshal(params)
	if err != nil {
		panic(fmt.Sprintf("jsonrpc: parameters of %s: %v", method, err))
	}
	return &Call{Method: method, Params: raw}
}

func (c *Call) open() bool { return c.Result == nil && c.Err == nil && c.Fail == nil }

// failAll says of every call that is still open why it has no answer.
func failAll(calls []*Call, err error) {
	for _, c := range calls {
		if c.open() {
			c.Fail = err
		}
	}
}

// requests are calls as they are written.
func requests(calls []*Call) []rpcconn.Call {
	all := make([]rpcconn.Call, len(calls))
	for i, c := range calls {
		params := c.Params
		if len(params) == 0 {
			params = json.RawMessage("[]")
		}
		all[i] = rpcconn.Call{Method: c.Method, Params: params}
	}
	return all
}

// refusal returns the error of a message; nil: it has none.
func (e *Endpoint) refusal(m *rpcconn.Message) *Error {
	if !m.Failed() {
		return nil
	}
	var refused struct {
		Code    json.RawMessage `json:"code"`
		Message json.RawMessage `json:"message"`
		Data    wire.Raw        `json:"data"`
	}
	var text string
	if err := wire.Unmarshal(m.Error, &refused); err != nil {
		if wire.Unmarshal(m.Error, &text) != nil {
			text = string(m.Error)
		}
		return &Error{Message: e.clean(text)}
	}
	code, _ := strconv.Atoi(string(refused.Code)) // 0 where it is no whole number
	if wire.Unmarshal(refused.Message, &text) != nil {
		text = string(refused.Message)
	}
	refusal := &Error{Code: code, Message: e.clean(text)}
	if len(refused.Data) > 0 && string(refused.Data) != "null" {
		refusal.Data = json.RawMessage(refused.Data)
	}
	return refusal
}

// read reads the message that answers a request, and settles all its calls.
func (e *Endpoint) read(calls []*Call, first uint64, data []byte) {
	var answers []rpcconn.Message
	wrong := rpcconn.Each(data, func(m *rpcconn.Message) error {
		if answers = append(answers, *m); len(answers) > len(calls) {
			return rpcconn.Nonsense("more answers than requests")
		}
		return nil
	})
	e.settle(calls, first, answers, wrong)
}

// settle gives the answers to a request to its calls, whose ids are first, first+1, …. wrong is what
// was wrong with the message they came in: then nothing in it is believed. A batch of which there
// are refusals, no result, and calls without an answer was refused as a whole: nodes put that
// under the id of its first request.
func (e *Endpoint) settle(calls []*Call, first uint64, answers []rpcconn.Message, wrong error) {
	for i := range answers {
		if wrong == nil {
			wrong = e.take(calls, first, &answers[i])
		}
	}
	var refusal *Error
	open, results := 0, 0
	for _, c := range calls {
		switch {
		case wrong != nil:
			c.Result, c.Err = nil, nil
		case c.open():
			open++
		case c.Result != nil:
			results++
		case refusal == nil:
			refusal = c.Err
		}
	}
	if wrong == nil && open > 0 {
		wrong = rpcconn.Nonsense("%d of %d requests are not answered", open, len(calls))
		if refusal != nil && results == 0 {
			wrong = &BatchError{Refusal: refusal}
			for _, c := range calls {
				c.Err = nil
			}
		}
	}
	failAll(calls, wrong)
}

// take gives one answer to its call. The error is about the message it came in.
func (e *Endpoint) take(calls []*Call, first uint64, m *rpcconn.Message) error {
	n, ok := m.Number()
	refusal := e.refusal(m)
	var c *Call
	switch {
	case ok && n >= first && n-first < uint64(len(calls)):
		c = calls[n-first]
	case ok || refusal == nil:
		return rpcconn.Nonsense("it answers a request that was not made")
	case len(calls) > 1: // an error that names no request
		return &BatchError{Refusal: refusal}
	default:
		c = calls[0]
	}
	switch {
	case !c.open():
		return rpcconn.Nonsense("one request is answered twice")
	case refusal != nil:
		c.Err = refusal
	case len(m.Result) == 0:
		c.Fail = rpcconn.Nonsense("neither result nor error")
	default:
		c.Result = json.RawMessage(m.Result)
	}
	return nil
}
