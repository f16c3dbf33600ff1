package rpcconn

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"noncegate/wire"
)

// Call is a method with what encoding/json makes its params, by name or positional; nil:
// none.
type Call struct {
	Method string
	Params any
}

// Encode writes calls with the ids first, first+1, …: one as an object, more as an array.
func Encode(first uint64, calls []Call) ([]byte, error) {
	type request struct {
		JSONRPC string `json:"jsonrpc"`
		ID      uint64 `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}
	if len(calls) == 1 {
		return wire.Marshal(&request{"2.0", first, calls[0].Method, calls[0].Params})
	}
	batch := make([]request, len(calls))
	for i, c := range calls {
		batch[i] = request{"2.0", first + uint64(i), c.Method, c.Params}
	}
	return wire.Marshal(batch)
}

// Message is anything the other side sends.
type Message struct {
	ID     wire.Raw `json:"id"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
	Result wire.Raw `json:"result"`
	Error  wire.Raw `json:"error"`
}

// Number returns the id that the message answers. ok is false for null and for what no
// call of ours had.
func (m *Message) Number() (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(m.ID), 10, 64)
	return n, err == nil
}

// Failed reports whether the message is an error.
func (m *Message) Failed() bool { return len(m.Error) > 0 && string(m.Error) != "null" }

// Each calls yield with every message in data, one or an array of them, until it returns
// an error, which is then the result.
func Each(data []byte, yield func(*Message) error) error {
	one := func(element []byte) error {
		var m Message
		if err := wire.Unmarshal(element, &m); err != nil {
			return Nonsense("not a JSON-RPC answer")
		}
		return yield(&m)
	}
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) == 0 || start[0] != '[' {
		return one(data)
	}
	var told error
	err := wire.Elements(data, func(_ int, element []byte) error { told = one(element); return told })
	if err != nil && !errors.Is(err, told) {
		return Nonsense("not JSON")
	}
	return err
}

// Nonsense is an ErrNonsense with the rule that was broken.
func Nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNonsense, fmt.Sprintf(format, args...))
}
