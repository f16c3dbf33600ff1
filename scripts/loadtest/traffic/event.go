package traffic

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

// event is what a request causes and a subscriber is told.
type event struct {
	account, nonce, attempt int64
	method                  Method
}

// notice is one notification as a subscriber reads it.
type notice struct {
	event
	missed int64 // before it
	ours   bool  // of a signer and a type that a load causes
}

var errNoEvent = errors.New("a message that is no event")

// eventTypes are the types that requests of a load cause.
var eventTypes = [...]struct {
	name   string
	method Method
}{
	{wire.EventAllocated, Allocate}, {wire.EventUsed, MarkUsed}, {wire.EventReleased, MarkRecyclable},
}

// parseNotice reads a notification. What it looks for stands in the order in
// which the gateway writes it; another spelling is decoded.
func parseNotice(payload []byte) (notice, error) {
	rest := payload
	kind, rest := quoted(rest, `"type":"`)
	signer, rest := quoted(rest, `"signer":"`)
	nonce, ok := field(rest, `"nonce":`)
	attempt, ok2 := field(rest, `"attempt":`)
	if kind == nil || signer == nil || !ok || !ok2 {
		return decodeNotice(payload)
	}
	n := makeNotice(string(kind), string(signer), nonce, attempt)
	if at := bytes.LastIndex(rest, []byte(`,"missed":`)); at >= 0 {
		n.missed, _ = field(rest[at:], `,"missed":`)
	}
	return n, nil
}

// quoted is the string after a name, and what follows it; nil when there is none.
func quoted(text []byte, name string) (value, rest []byte) {
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return nil, text
	}
	value, rest, ok := bytes.Cut(text[at+len(name):], []byte{'"'})
	if !ok {
		return nil, text
	}
	return value, rest
}

func decodeNotice(payload []byte) (notice, error) {
	var f struct {
		Params struct {
			Result *wire.Event `json:"result"`
		} `json:"params"`
	}
	if err := wire.Unmarshal(payload, &f); err != nil || f.Params.Result == nil {
		return notice{}, errNoEvent
	}
	e := f.Params.Result
	n := makeNotice(e.Type, e.Signer, e.Nonce, e.Attempt)
	n.missed = e.Missed
	return n, nil
}

func makeNotice(kind, signer string, nonce, attempt int64) notice {
	n := notice{event: event{nonce: nonce, attempt: attempt}}
	account, ok := accountOf(signer)
	if !ok {
		return n
	}
	n.account = account
	for _, t := range eventTypes {
		if t.name == kind {
			n.method, n.ours = t.method, true
		}
	}
	return n
}

// accountOf is the number of an account by its name; false: it is not one of a
// load.
func accountOf(signer string) (int64, bool) {
	number, ok := strings.CutPrefix(signer, signerPrefix)
	if !ok || len(number) != signerDigits {
		return 0, false
	}
	account, err := strconv.ParseInt(number, 16, 64)
	return account, err == nil && verify.Signer(account) == signer
}
