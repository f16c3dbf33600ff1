package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"noncegate/chain/ethereum"
	"noncegate/wire"
)

// How long a client had better wait before it asks again.
const (
	retryBusy        = 50  // milliseconds
	retryUnavailable = 500 // milliseconds
	retryFeeds       = 1e3 // milliseconds: until a subscription ends
)

// maxWord bounds what is repeated of a client's words, or of a node's, in an error.
const maxWord = 160

func clip(s string) string { return clipTo(s, maxWord) }

func clipTo(s string, maxBytes int) string {
	if len(s) > maxBytes {
		s = strings.ToValidUTF8(s[:maxBytes], "") + "…"
	}
	return s
}

// noMethod refuses a method, in words by which clients know it as one that is not there.
func (e *Endpoint) noMethod(method string) *wire.Error {
	const plain = "the method %s does not exist/is not available"
	if why, known := e.methods.refused[method]; known {
		return wire.Errorf(wire.CodeMethodNotFound, plain+": %s", method, why)
	}
	return wire.Errorf(wire.CodeMethodNotFound, plain+": it is not on the list of what the gateway passes on", clip(fmt.Sprintf("%q", method)))
}

// invalid names what is wrong with the params.
func invalid(field, rule string, args ...any) *wire.Error {
	err := wire.Errorf(wire.CodeInvalidParams, "%s: %s", field, fmt.Sprintf(rule, args...))
	err.Data.Field = field
	return err
}

// errOfNodes is why nodes could not be asked.
func errOfNodes(err error) *wire.Error {
	switch {
	case errors.Is(err, ethereum.ErrTooLarge):
		return wire.Errorf(wire.CodeAnswerTooLarge, "the node's answer is larger than is passed on; ask for less")
	case errors.Is(err, ethereum.ErrBusy):
		return busy(wire.StageForward, retryBusy,
			"no slot at the nodes of the chain became free in time, or they want fewer requests; nothing happened; ask again")
	}
	return unavailable(wire.OutcomeNone, retryUnavailable, "no node of the chain has answered; nothing happened")
}

// unavailable is an error of a part that is out of reach, with what became of the request.
func unavailable(outcome string, retryAfterMs int64, sentence string, args ...any) *wire.Error {
	e := wire.Errorf(wire.CodeUnavailable, sentence, args...)
	e.Data.Outcome, e.Data.RetryAfterMs = outcome, retryAfterMs
	return e
}

// busy refuses what finds no room at a stage.
func busy(stage string, retryAfterMs int64, sentence string, args ...any) *wire.Error {
	e := wire.Errorf(wire.CodeServerBusy, sentence, args...)
	e.Data.Stage, e.Data.RetryAfterMs = stage, retryAfterMs
	return e
}

// errFeeds refuses a subscription beyond what there may be of them.
func errFeeds(sentence string, args ...any) *wire.Error {
	return busy(wire.StageQuota, retryFeeds, sentence+"; end one before you open another", args...)
}

// array returns params as the array that nodes want.
func array(params []byte) ([]byte, *wire.Error) {
	params = bytes.TrimSpace(params)
	switch {
	case len(params) == 0:
		return []byte("[]"), nil
	case params[0] != '[':
		return nil, invalid("params", "must be an array")
	}
	return params, nil
}

// elements returns the params one by one, of which there must be minLen to maxLen.
func elements(params []byte, minLen, maxLen int) ([]json.RawMessage, *wire.Error) {
	params, err := array(params)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if json.Unmarshal(params, &list) != nil || len(list) < minLen || len(list) > maxLen {
		if maxLen == 1 {
			return nil, invalid("params", "must have one element")
		}
		if minLen == maxLen {
			return nil, invalid("params", "must have %d elements", maxLen)
		}
		return nil, invalid("params", "must have %d to %d elements", minLen, maxLen)
	}
	return list, nil
}

// text is a param that is a string.
func text(param json.RawMessage) (s string, ok bool) {
	err := json.Unmarshal(param, &s)
	return s, err == nil && len(param) > 0 && bytes.TrimSpace(param)[0] == '"'
}
