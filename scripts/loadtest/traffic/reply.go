package traffic

import (
	"bytes"
	"errors"
	"fmt"

	"noncegate/wire"
)

var errNoReply = errors.New("a message that is no answer to a request of ours")

// reply is an answer as far as it was looked at.
type reply struct {
	id     int
	failed bool
	body   []byte // what follows the word result or error and its colon, up to the end
}

// The texts of a reply that the gateway writes before anything that changes.
// Another spelling is understood too, at the price of decoding it.
var (
	replyID     = []byte(textID)
	replyResult = []byte(`,"result":`)
	replyError  = []byte(`,"error":`)
)

// parseReply reads a reply's id, and whether it is a result.
func parseReply(payload []byte) (reply, error) {
	rest, ok := bytes.CutPrefix(payload, replyID)
	if !ok {
		return decodeReply(payload)
	}
	id, n := digits(rest)
	body, ok := bytes.CutPrefix(rest[n:], replyResult)
	if ok && n > 0 {
		return reply{id: id, body: body}, nil
	}
	body, ok = bytes.CutPrefix(rest[n:], replyError)
	if ok && n > 0 {
		return reply{id: id, failed: true, body: body}, nil
	}
	return decodeReply(payload)
}

// digits reads the whole number at the beginning of text, and how many digits it
// has; none when it is not one of ours.
func digits(text []byte) (value, n int) {
	for n < len(text) && n < 18 && text[n] >= '0' && text[n] <= '9' {
		value = value*10 + int(text[n]-'0')
		n++
	}
	return value, n
}

func decodeReply(payload []byte) (reply, error) {
	var f struct {
		ID     *int     `json:"id"`
		Result wire.Raw `json:"result"`
		Error  wire.Raw `json:"error"`
	}
	if err := wire.Unmarshal(payload, &f); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNoReply, err)
	}
	switch {
	case f.ID == nil || (f.Result == nil) == (f.Error == nil):
		return reply{}, errNoReply
	case f.Error != nil:
		return reply{id: *f.ID, failed: true, body: append(f.Error, '}')}, nil
	}
	return reply{id: *f.ID, body: append(f.Result, '}')}, nil
}

// value is the result or the error, without the brace of the reply around it.
func (r *reply) value() []byte {
	return bytes.TrimSuffix(bytes.TrimSpace(r.body), []byte("}"))
}

// field is the whole number that a member has in a JSON object whose strings
// hold nothing that looks like one.
func field(object []byte, name string) (int64, bool) {
	at := bytes.Index(object, []byte(name))
	if at < 0 {
		return 0, false
	}
	value, n := digits(object[at+len(name):])
	return int64(value), n > 0
}

// handed is what the result of an allocate says.
type handed struct{ nonce, attempt, holdMs int64 }

// handedOut reads the result of an allocate.
func (r *reply) handedOut() (handed, error) {
	nonce, ok1 := field(r.body, `"nonce":`)
	attempt, ok2 := field(r.body, `"attempt":`)
	holdMs, ok3 := field(r.body, `"holdMs":`)
	if ok1 && ok2 && ok3 {
		return handed{nonce, attempt, holdMs}, nil
	}
	return r.decodeHandedOut()
}

func (r *reply) decodeHandedOut() (handed, error) {
	a := wire.AllocateResult{Nonce: -1}
	if err := wire.Unmarshal(r.value(), &a); err != nil || a.Nonce < 0 {
		return handed{}, fmt.Errorf("the result of an allocate that cannot be read: %.200s", r.body)
	}
	return handed{a.Nonce, a.Attempt, a.HoldMs}, nil
}

// refusal is the reason of an error reply.
func (r *reply) refusal() string {
	_, after, found := bytes.Cut(r.body, []byte(`"reason":"`))
	word, _, closed := bytes.Cut(after, []byte{'"'})
	if !found || !closed {
		return "error without reason"
	}
	return string(word)
}

// refused decodes an error reply.
func (r *reply) refused() *wire.Error {
	var e wire.Error
	if wire.Unmarshal(r.value(), &e) != nil {
		return &wire.Error{Message: "an error that cannot be read"}
	}
	return &e
}
