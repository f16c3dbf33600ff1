package wire

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/goccy/go-json/jsontext"
)

// Call is one request of a frame. Its bytes are those of the frame.
type Call struct {
	ID     []byte // raw JSON, to be echoed; nil: a notification, answered by nothing
	Method []byte
	Params []byte // raw JSON, an object or an array, in which names may be given twice and surrogates unpaired; nil: none
	Err    *Error // this request is invalid; ID is then what can be echoed, null where nothing can
}

// Frame is one decoded text frame. A Frame may be used again and again and keeps
// its memory for that; it belongs to one goroutine at a time.
type Frame struct {
	Calls []Call // in the order of the frame, valid until the next Decode and as long as its bytes
	Batch bool   // the frame was an array, and so is its answer

	// MaxBatch is the most requests an array may hold; 0 means no bound. It is
	// judged while decoding, because a small element costs more memory decoded
	// than it costs to send.
	MaxBatch int
}

// keptCalls is how many calls a Frame keeps the memory of from one frame to the next.
const keptCalls = 32

// Decode reads one frame. Its error, parse_error or invalid_request, is about
// the frame as a whole, is answered with the id null, and leaves no Calls; what
// is wrong with a single request is in its Call.
func (f *Frame) Decode(data []byte) *Error {
	f.Batch = jsontext.Value(data).Kind() == jsontext.KindBeginArray
	f.Calls = f.Calls[:0]
	if cap(f.Calls) > keptCalls {
		f.Calls = nil
	}
	if !isJSON(data) || !utf8.Valid(data) {
		return parseError(data)
	}
	if !f.Batch {
		f.Calls = append(f.Calls, callOf(data))
		return nil
	}
	elements := partsOf(data)
	for e := elements.next(); e != nil; e = elements.next() {
		if f.MaxBatch > 0 && len(f.Calls) == f.MaxBatch {
			f.Calls = f.Calls[:0]
			return Errorf(CodeInvalidRequest, "the batch has more than %d requests", f.MaxBatch)
		}
		f.Calls = append(f.Calls, callOf(e))
	}
	if len(f.Calls) == 0 {
		return Errorf(CodeInvalidRequest, "the batch is empty")
	}
	return nil
}

// request is the members of a request as they stand. Others are ignored.
type request struct{ version, id, method, params []byte }

// callOf reads one request. data is valid JSON.
func callOf(data []byte) Call {
	if jsontext.Value(data).Kind() != jsontext.KindBeginObject {
		return refused(nil, Errorf(CodeInvalidRequest, "a request must be an object"))
	}
	var r request
	twice := r.read(data)
	id := r.id
	if !validID(id) || unpaired(id) {
		id = nil
	}
	switch {
	case twice != "":
		return refused(id, invalidRequest(shortened(twice), givenTwice))
	case unpaired(r.id):
		return refused(nil, invalidRequest("id", unpairedSurrogate))
	case r.id != nil && id == nil:
		return refused(nil, invalidRequest("id", "must be a string, a whole number or null"))
	case string(r.version) != `"2.0"`:
		return refused(id, invalidRequest("jsonrpc", `must be "2.0"`))
	case r.method == nil:
		return refused(id, invalidRequest("method", "is required"))
	case r.method[0] != '"':
		return refused(id, invalidRequest("method", "must be a string"))
	case unpaired(r.method):
		return refused(id, invalidRequest("method", unpairedSurrogate))
	}
	c := Call{ID: id, Method: unquote(r.method)}
	switch jsontext.Value(r.params).Kind() {
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		c.Params = r.params
	case jsontext.KindInvalid, jsontext.KindNull: // absent, or as good as
	default:
		return refused(id, invalidRequest("params", "must be an object or an array"))
	}
	return c
}

// read reads the members of an object. twice is the first name that it has more than once;
// "" if there is none. Of two the last one counts.
func (r *request) read(object []byte) (twice string) {
	var others map[string]bool
	members := partsOf(object)
	for quoted := members.next(); quoted != nil; quoted = members.next() {
		value := members.next()
		member := r.member(quoted)
		if member == nil && bytes.IndexByte(quoted, '\\') >= 0 { // it may be one of those with an escape
			quoted, _ = jsontext.AppendQuote(nil, unquote(quoted))
			member = r.member(quoted)
		}
		again := member != nil && *member != nil || others[string(quoted)]
		switch {
		case again && twice == "":
			twice = string(unquote(quoted))
		case member == nil && others == nil:
			others = map[string]bool{string(quoted): true}
		case member == nil:
			others[string(quoted)] = true
		}
		if member != nil {
			*member = value
		}
	}
	return twice
}

// member is where the member of a name is kept; nil: nowhere.
func (r *request) member(quoted []byte) *[]byte {
	switch string(quoted) {
	case `"jsonrpc"`:
		return &r.version
	case `"id"`:
		return &r.id
	case `"method"`:
		return &r.method
	case `"params"`:
		return &r.params
	}
	return nil
}

func refused(id []byte, err *Error) Call {
	if len(id) == 0 {
		id = null
	}
	return Call{ID: id, Err: err}
}

// validID reports whether a client may use id: a string, a number without
// fraction or exponent, or null.
func validID(id []byte) bool {
	switch jsontext.Value(id).Kind() {
	case jsontext.KindString, jsontext.KindNull:
		return true
	case jsontext.KindNumber:
		return whole(id)
	}
	return false
}

func invalidRequest(field, rule string) *Error {
	return fieldError(CodeInvalidRequest, field, rule)
}

// fieldError is a refusal that names the field and the rule.
func fieldError(code int, field, rule string) *Error {
	e := Errorf(code, "%s: %s", field, rule)
	e.Data.Field = field
	return e
}

// parseError says why data is not JSON, or not JSON that is read here.
func parseError(data []byte) *Error {
	if !utf8.Valid(data) {
		return Errorf(CodeParseError, "the frame is not valid UTF-8")
	}
	at := int64(len(data))
	if se, ok := errors.AsType[*jsontext.SyntacticError](notJSON(data)); ok {
		at = se.ByteOffset
		if se.Err != nil && se.Err.Error() == "exceeded max depth" { // the library has no other name for it
			return Errorf(CodeParseError, "arrays and objects must be nested at most %d deep; the frame is deeper at byte %d", maxNesting, at)
		}
	}
	return Errorf(CodeParseError, "the frame is not valid JSON at byte %d", at)
}

// maxNesting is how deep arrays and objects of a frame may be nested, the frame's own
// value included. The JSON library sets it.
const maxNesting = 10_000
