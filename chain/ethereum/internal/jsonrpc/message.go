package jsonrpc

import (
	"encoding/json"
	"fmt"
	"slices"
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

// settle gives the answer to the call.
func (c *Call) settle(m *rpcconn.Message, e *Endpoint) {
	switch refusal := e.refusal(m); {
	case refusal != nil:
		c.Err = refusal
	case len(m.Result) == 0:
		c.Fail = rpcconn.Nonsense("neither result nor error")
	default:
		c.Result = json.RawMessage(m.Result)
	}
}

// exchange is calls that were sent as one request, and are answered by one message.
// Their ids are first, first+1, ….
type exchange struct {
	calls []*Call
	first uint64
}

// fail says of every call that is still open why it has no answer.
func (x *exchange) fail(err error) { failAll(x.calls, err) }

// failWith is fail for an answer with another status than 200. A batch of which no call has a
// result was refused as a whole, whatever else the answer says of single calls.
func (x *exchange) failWith(status error) {
	if len(x.calls) > 1 && !slices.ContainsFunc(x.calls, func(c *Call) bool { return c.Result != nil }) {
		var why error
		for _, c := range x.calls {
			if why == nil && c.Err != nil {
				why = c.Err
			} else if why == nil {
				why = c.Fail
			}
			c.Err, c.Fail = nil, nil
		}
		if why != nil {
			status = fmt.Errorf("%w: %w", status, why)
		}
	}
	x.fail(status)
}

// take gives one answer to its call. The error is about the message it came in.
func (x *exchange) take(m *rpcconn.Message, e *Endpoint) error {
	n, ok := m.Number()
	switch {
	case ok && n >= x.first && n-x.first < uint64(len(x.calls)):
		c := x.calls[n-x.first]
		if !c.open() {
			return rpcconn.Nonsense("one request is answered twice")
		}
		c.settle(m, e)
		return nil
	case !ok:
		if refusal := e.refusal(m); refusal != nil {
			return x.refused(refusal)
		}
	}
	return rpcconn.Nonsense("it answers a request that was not made")
}

// refused deals with an error that names no request.
func (x *exchange) refused(refusal *Error) error {
	if len(x.calls) > 1 {
		return &BatchError{Refusal: refusal}
	}
	if x.calls[0].open() {
		x.calls[0].Err = refusal
	}
	return nil
}

// finish settles what is open once the message was read. err is what was wrong with it:
// then nothing in it is believed. A batch of which there are refusals, no result, and
// calls without an answer was refused as a whole: nodes put that under the id of its
// first request.
func (x *exchange) finish(err error) {
	if err != nil {
		for _, c := range x.calls {
			c.Result, c.Err = nil, nil
		}
		x.fail(err)
		return
	}
	var refusal *Error
	open, results := 0, 0
	for _, c := range x.calls {
		switch {
		case c.open():
			open++
		case c.Result != nil:
			results++
		case refusal == nil:
			refusal = c.Err
		}
	}
	if open == 0 {
		return
	}
	if refusal != nil && results == 0 {
		err = &BatchError{Refusal: refusal}
		for _, c := range x.calls {
			c.Err = nil
		}
	}
	if err == nil {
		err = rpcconn.Nonsense("%d of %d requests are not answered", open, len(x.calls))
	}
	x.fail(err)
}

// read reads the message that answers the exchange, and settles all its calls.
func (x *exchange) read(data []byte, e *Endpoint) {
	n := 0
	x.finish(rpcconn.Each(data, func(m *rpcconn.Message) error {
		n++
		if n > len(x.calls) {
			return rpcconn.Nonsense("more answers than requests")
		}
		return x.take(m, e)
	}))
}
