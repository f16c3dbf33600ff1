package wire

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// Call is one request of a frame. Its bytes belong to the Frame.
type Call struct {
	ID     []byte // raw JSON, to be echoed; nil: a notification, answered by nothing
	Method string
	Params []byte // raw JSON, an object or an array, in which names may be given twice and surrogates unpaired; nil: none
	Path   uint64 // between nodes: what must not be overtaken; 0: none, or no number
	Err    *Error // this request is invalid; ID is then what can be echoed, null where nothing can
}

// Frame is one decoded text frame. A Frame may be used again and again and keeps
// its memory for that, up to 64 KiB; it belongs to one goroutine at a time. Keep
// frames in a pool, not one with each idle connection.
type Frame struct {
	Calls []Call // in the order of the frame, valid until the next Decode
	Batch bool   // the frame was an array, and so is its answer

	// MaxBatch is the most requests an array may hold; 0 means no bound. It is
	// judged while decoding, because a small element costs more memory decoded
	// than it costs to send.
	MaxBatch int

	requests []request // requests[i] owns the bytes of Calls[i]
}

const (
	keptCalls = 32  // slots a Frame keeps from one frame to the next
	keptBytes = 512 // bytes a slot keeps for each member
)

// Decode reads one frame. Its error, parse_error or invalid_request, is about
// the frame as a whole, is answered with the id null, and leaves no Calls; what
// is wrong with a single request is in its Call. Nothing of data is referred to
// afterwards.
func (f *Frame) Decode(data []byte) *Error {
	f.Batch = jsontext.Value(data).Kind() == jsontext.KindBeginArray
	f.Calls = f.Calls[:0]
	if len(f.requests) > keptCalls {
		f.Calls, f.requests = nil, nil
	}
	err := f.decode(data)
	if err != nil {
		f.Calls = f.Calls[:0]
	}
	return err
}

func (f *Frame) decode(data []byte) *Error {
	if !f.Batch {
		return parseError(data, f.add(data))
	}
	err := elements(data, func(i int, element []byte) error {
		if f.MaxBatch > 0 && i == f.MaxBatch {
			return errTooMany
		}
		return f.add(element)
	})
	switch {
	case errors.Is(err, errTooMany):
		return Errorf(CodeInvalidRequest, "the batch has more than %d requests", f.MaxBatch)
	case err != nil:
		return parseError(data, err)
	case len(f.Calls) == 0:
		return Errorf(CodeInvalidRequest, "the batch is empty")
	}
	return nil
}

var errTooMany = errors.New("too many elements")

// add decodes one request into the next slot. Its error says that data is not
// JSON. The first reading is strict and nearly always the only one; what it
// refuses is read again, leniently, to find the sentence and the id.
func (f *Frame) add(data []byte) error {
	isObject := jsontext.Value(data).Kind() == jsontext.KindBeginObject
	r := f.slot()
	if isObject && json.Unmarshal(data, r) == nil {
		f.Calls = append(f.Calls, r.call())
		return nil
	}
	if !utf8.Valid(data) {
		return errNotUTF8
	}
	if !isObject {
		f.Calls = append(f.Calls, refused(nil, Errorf(CodeInvalidRequest, "a request must be an object")))
		return json.Unmarshal(data, new(Raw), lenient)
	}
	r.reset()
	twice, err := r.reread(data)
	if err != nil {
		return err
	}
	f.Calls = append(f.Calls, r.lenientCall(twice))
	return nil
}

var errNotUTF8 = errors.New("not valid UTF-8")

// lenient lets names be given twice and strings have unpaired surrogates: it tells
// what is not JSON from what is only not a request. It lets invalid UTF-8 pass too,
// which is looked for apart.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// slot returns an empty request whose memory is that of the slot of the next
// call.
func (f *Frame) slot() *request {
	n := len(f.Calls)
	if n == len(f.requests) {
		f.requests = append(f.requests, request{})
	}
	r := &f.requests[n]
	r.reset()
	return r
}

// request is a request as its members stand. Other members are ignored.
type request struct {
	Version Raw `json:"jsonrpc"`
	ID      Raw `json:"id"`
	Method  Raw `json:"method"`
	Params  Raw `json:"params"`
	Path    Raw `json:"path"`
}

func (r *request) reset() {
	for _, member := range []*Raw{&r.Version, &r.ID, &r.Method, &r.Params, &r.Path} {
		if cap(*member) > keptBytes {
			*member = nil
		}
		*member = (*member)[:0]
	}
}

// reread reads the members of the object data leniently. twice is the first name
// that it has more than once, shortened; "" if there is none. The error says that
// data is not JSON.
func (r *request) reread(data []byte) (twice string, err error) {
	members := map[string]*Raw{"jsonrpc": &r.Version, "id": &r.ID, "method": &r.Method, "params": &r.Params, "path": &r.Path}
	seen := map[string]bool{}
	err = eachMember(data, func(name string, value []byte) {
		if seen[name] && twice == "" {
			twice = shortened(name)
		}
		seen[name] = true
		if member, ok := members[name]; ok {
			*member = append((*member)[:0], value...)
		}
	})
	return twice, err
}

// lenientCall judges the members of a request that only the lenient reading takes. What
// is wrong inside of its params is found, and refused, by who decodes them.
func (r *request) lenientCall(twice string) Call {
	badID := unpaired(r.ID)
	if twice != "" {
		var id []byte
		if validID(r.ID) && !badID {
			id = r.ID
		}
		return refused(id, invalidRequest(twice, givenTwice))
	}
	if badID {
		return refused(nil, invalidRequest("id", unpairedSurrogate))
	}
	c := r.call()
	if c.Err == nil && unpaired(r.Method) {
		return refused(c.ID, invalidRequest("method", unpairedSurrogate))
	}
	return c
}

// unpaired reports whether v, a JSON value in UTF-8, is a string with an unpaired
// surrogate.
func unpaired(v Raw) bool {
	return jsontext.Value(v).Kind() == jsontext.KindString && !jsontext.Value(v).IsValid()
}

// The rules that hold for every name and every string.
const (
	givenTwice        = "given twice"
	unpairedSurrogate = `must not contain an unpaired surrogate ("\ud800" to "\udfff")`
)

// call judges the members.
func (r *request) call() Call {
	var c Call
	if len(r.ID) > 0 {
		if !validID(r.ID) {
			return refused(nil, invalidRequest("id", "must be a string, a whole number or null"))
		}
		c.ID = r.ID
	}
	if string(r.Version) != `"2.0"` {
		return refused(c.ID, invalidRequest("jsonrpc", `must be "2.0"`))
	}
	switch {
	case len(r.Method) == 0:
		return refused(c.ID, invalidRequest("method", "is required"))
	case r.Method[0] != '"':
		return refused(c.ID, invalidRequest("method", "must be a string"))
	}
	c.Method = methodName(r.Method)
	if len(r.Path) > 0 {
		c.Path, _ = strconv.ParseUint(string(r.Path), 10, 64) // of no use to clients, and ignored
	}
	switch jsontext.Value(r.Params).Kind() {
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		c.Params = r.Params
	case jsontext.KindInvalid, jsontext.KindNull: // absent, or as good as
	default:
		return refused(c.ID, invalidRequest("params", "must be an object or an array"))
	}
	return c
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
		return !bytes.ContainsAny(id, ".eE")
	}
	return false
}

// methodName returns the content of the JSON string quoted, without an
// allocation for the methods that come often.
func methodName(quoted []byte) string {
	name := unquote(quoted)
	switch string(name) {
	case MethodAllocate:
		return MethodAllocate
	case MethodMarkUsed:
		return MethodMarkUsed
	case MethodMarkRecyclable:
		return MethodMarkRecyclable
	case MethodStatus:
		return MethodStatus
	case MethodList:
		return MethodList
	}
	return string(name)
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

// parseError says why data is not JSON, or not JSON that is read here; nil if err is.
func parseError(data []byte, err error) *Error {
	if err == nil {
		return nil
	}
	if !utf8.Valid(data) {
		return Errorf(CodeParseError, "the frame is not valid UTF-8")
	}
	at := int64(len(data))
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = se.ByteOffset
	}
	if nesting(data[:at]) >= maxNesting {
		return Errorf(CodeParseError, "arrays and objects must be nested at most %d deep; the frame is deeper at byte %d", maxNesting, at)
	}
	return Errorf(CodeParseError, "the frame is not valid JSON at byte %d", at)
}

// maxNesting is how deep arrays and objects of a frame may be nested, the frame's own
// value included. The JSON library sets it.
const maxNesting = 10_000

// nesting is how many arrays and objects are open at the end of text, which is the
// beginning of valid JSON.
func nesting(text []byte) (depth int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		}
	}
	return depth
}
