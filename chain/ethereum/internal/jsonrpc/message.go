package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

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

	// answered is told of the result by the goroutine that read it, before any later
	// message of the same connection is looked at, under the lock of the connection;
	// nil: nobody.
	answered func(result json.RawMessage)
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

// request is a call as it is written.
type request struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      uint64          `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// encode writes calls with the ids first, first+1, …: one as an object, more as an array.
func encode(calls []*Call, first uint64) ([]byte, error) {
	requests := make([]request, len(calls))
	for i, c := range calls {
		params := c.Params
		if len(params) == 0 {
			params = json.RawMessage("[]")
		}
		requests[i] = request{JSONRPC: "2.0", ID: first + uint64(i), Method: c.Method, Params: params}
	}
	if len(requests) == 1 {
		return wire.Marshal(&requests[0])
	}
	return wire.Marshal(requests)
}

// message is anything a node sends.
type message struct {
	ID     wire.Raw `json:"id"`
	Result wire.Raw `json:"result"`
	Error  wire.Raw `json:"error"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
}

// id returns the number that the message answers. ok is false for null and for what no
// request of ours had.
func (m *message) id() (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(m.ID), 10, 64)
	return n, err == nil
}

// refusal returns the error of the message; nil: it has none.
func (m *message) refusal(e *Endpoint) *Error {
	if len(m.Error) == 0 || string(m.Error) == "null" {
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
func (m *message) settle(c *Call, e *Endpoint) {
	switch refusal := m.refusal(e); {
	case refusal != nil:
		c.Err = refusal
	case len(m.Result) == 0:
		c.Fail = nonsense("neither result nor error")
	default:
		c.Result = json.RawMessage(m.Result)
		if c.answered != nil {
			c.answered(c.Result)
		}
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
func (x *exchange) take(m *message, e *Endpoint) error {
	n, ok := m.id()
	switch {
	case ok && n >= x.first && n-x.first < uint64(len(x.calls)):
		c := x.calls[n-x.first]
		if !c.open() {
			return nonsense("one request is answered twice")
		}
		m.settle(c, e)
		return nil
	case !ok:
		if refusal := m.refusal(e); refusal != nil {
			return x.refused(refusal)
		}
	}
	return nonsense("it answers a request that was not made")
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
		err = nonsense("%d of %d requests are not answered", open, len(x.calls))
	}
	x.fail(err)
}

// read reads the message that answers the exchange, and settles all its calls.
func (x *exchange) read(data []byte, e *Endpoint) {
	n := 0
	x.finish(each(data, func(m *message) error {
		n++
		if n > len(x.calls) {
			return nonsense("more answers than requests")
		}
		return x.take(m, e)
	}))
}

// each calls yield with every message in data, one at a time, until it returns an error,
// which is then the result.
func each(data []byte, yield func(*message) error) error {
	one := func(element []byte) error {
		var m message
		if err := wire.Unmarshal(element, &m); err != nil {
			return nonsense("not a JSON-RPC answer")
		}
		return yield(&m)
	}
	if !isArray(data) {
		return one(data)
	}
	err := wire.Elements(data, func(_ int, element []byte) error { return one(element) })
	if _, ok := errors.AsType[*BatchError](err); err == nil || ok || errors.Is(err, ErrNonsense) {
		return err
	}
	return nonsense("not JSON")
}

func isArray(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && data[0] == '['
}
