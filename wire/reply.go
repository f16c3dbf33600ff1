package wire

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-json/jsontext"
)

// Errorf makes an error of the protocol, with the code's Reason. Its message is
// "reason: sentence", because many clients show nothing else; the sentence is
// formatted as by fmt.Sprintf.
func Errorf(code int, format string, args ...any) *Error {
	return newError(code, Reason(code), format, args...)
}

// Rejectedf makes an error with CodeRejected, which has several reasons.
func Rejectedf(reason, format string, args ...any) *Error {
	return newError(CodeRejected, reason, format, args...)
}

func newError(code int, reason, format string, args ...any) *Error {
	return &Error{
		Code:    code,
		Message: reason + ": " + fmt.Sprintf(format, args...),
		Data:    &ErrorData{Reason: reason},
	}
}

// AppendResult appends one whole reply. id is raw JSON and echoed as it is;
// result is best a pointer, which costs no allocation. On an error, which only
// a value that JSON cannot say causes, dst comes back as it was.
func AppendResult(dst, id []byte, result any) ([]byte, error) {
	out, err := appendValue(append(appendHead(dst, id), `,"result":`...), result)
	if err != nil {
		return dst, err
	}
	return append(out, '}'), nil
}

// AppendPage appends the reply to nonce_list: as many of the rows as there is room for in so many
// bytes, one at least. Where that is not all, the next page begins with the first that is left out.
func AppendPage(dst, id []byte, page *ListResult, room int) ([]byte, error) {
	const tail = len(`],"nextFrom":9223372036854775807,"partial":true}}`)
	out := append(appendHead(dst, id), `,"result":{"allocations":[`...)
	next := page.NextFrom
	for i := range page.Allocations {
		before := len(out)
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = appendValue(out, &page.Allocations[i]); err != nil {
			return dst, err
		}
		if i > 0 && len(out)-len(dst)+tail > room {
			out, next = out[:before], &page.Allocations[i].Nonce
			break
		}
	}
	out = append(out, ']')
	if next != nil {
		out = strconv.AppendInt(append(out, `,"nextFrom":`...), *next, 10)
	}
	if page.Partial {
		out = append(out, `,"partial":true`...)
	}
	return append(out, "}}"...), nil
}

// AppendError appends one whole reply that carries e. id is raw JSON and echoed
// as it is; without one it is null.
func AppendError(dst, id []byte, e *Error) []byte {
	return append(mustAppend(append(appendHead(dst, id), `,"error":`...), e), '}')
}

// mustAppend is appendValue for what has nothing in it that JSON cannot say.
func mustAppend(dst []byte, v any) []byte {
	out, err := appendValue(dst, v)
	if err != nil {
		panic("wire: this can always be written: " + err.Error())
	}
	return out
}

func appendHead(dst, id []byte) []byte {
	if len(id) == 0 {
		id = null
	}
	return append(append(dst, `{"jsonrpc":"2.0","id":`...), id...)
}

// AppendEvent appends e as JSON, to be spliced into any number of notifications
// by AppendSubscription. e.Missed must be 0: it differs by subscription.
func AppendEvent(dst []byte, e *Event) []byte { return mustAppend(dst, e) }

// AppendSubscription appends one whole notification of the subscription, under
// the method that its kind of client listens to. event is what AppendEvent
// wrote; missed, when above 0, becomes its last member.
func AppendSubscription(dst []byte, method, subscription string, event []byte, missed int64) []byte {
	dst = appendQuoted(append(dst, `{"jsonrpc":"2.0","method":`...), method)
	dst = appendQuoted(append(dst, `,"params":{"subscription":`...), subscription)
	dst = append(append(dst, `,"result":`...), event...)
	if missed > 0 {
		dst = append(dst[:len(dst)-len("}")], `,"missed":`...)
		dst = append(strconv.AppendInt(dst, missed, 10), '}')
	}
	return append(dst, "}}"...)
}

// appendQuoted appends s as a JSON string. The error it drops only says that
// invalid UTF-8 was replaced.
func appendQuoted(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}
