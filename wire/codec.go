// Package wire is the protocol as bytes: JSON-RPC 2.0 requests in, replies and
// notifications out, and the types of both.
//
// It promises strictness on the way in: names are matched by their exact case,
// unknown parameters, names given twice, trailing data, unpaired surrogates,
// invalid UTF-8 and numbers outside their range are refused, each with a sentence
// that names the field and the rule. On the way out it appends to the caller's
// buffer and writes every time with exactly three digits of milliseconds.
//
// It does not know the rules behind the parameters: signers, transaction hashes
// and request ids are strings here, and package ws checks the bounds that an
// operator can set. It has no goroutine, no lock and no state but pools of
// scratch memory; everything except a Frame may be used by many goroutines.
//
// It is the only package that imports goccy/go-json. That library is fast
// because it is unsafe, so a differential fuzz test holds it against
// encoding/json for every type here.
//
// Where to begin reading: types.go and params.go (the protocol), frame.go (a frame's
// requests), decode.go (their params), scan.go (what both walk), reply.go and relay.go
// (the way out), codec.go (the library).
package wire

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	jsonv1 "github.com/goccy/go-json"
	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// encoding is how values are written: as encoding/json does, without the escapes
// meant for HTML. It refuses invalid UTF-8, which mending replaces by U+FFFD, at
// twice the cost for every string.
var (
	encoding = jsonv1.OmitEmptyWithLegacySemantics(true)
	mending  = json.JoinOptions(encoding, jsontext.AllowInvalidUTF8(true))
)

// sink is an io.Writer that appends.
type sink struct{ buf []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	return len(p), nil
}

var sinks = sync.Pool{New: func() any { return new(sink) }}

// appendValue appends v as JSON. On an error dst comes back as it was.
func appendValue(dst []byte, v any) ([]byte, error) {
	s := sinks.Get().(*sink)
	s.buf = dst
	err := json.MarshalWrite(s, v, encoding) // writes all or nothing
	if err != nil {
		err = json.MarshalWrite(s, v, mending)
	}
	grown := s.buf
	s.buf = nil
	sinks.Put(s)
	if err != nil {
		return dst, err
	}
	return grown, nil
}

// Marshal returns v as JSON, written as replies are. Invalid UTF-8 becomes
// U+FFFD; what JSON cannot say, such as a NaN, is an error.
func Marshal(v any) ([]byte, error) { return appendValue(nil, v) }

// Unmarshal reads one JSON value into v, a non-nil pointer. Names are matched
// by their exact case and unknown ones are ignored, so that an older client
// understands a newer gateway; names given twice, trailing data and invalid
// UTF-8 are errors.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// UnmarshalKnown is Unmarshal for what orders something: unknown names are refused too,
// because their writer believes that they change it. The error is a sentence that
// names the member and the rule; whole is what it calls the value as a whole.
func UnmarshalKnown(data []byte, v any, whole string) error {
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	field, broken := brokenRule(data, err, whole)
	return fmt.Errorf("%s: %s", field, broken)
}

// brokenRule says of an error of the library about data, which whole names, what is
// wrong with which part of it.
func brokenRule(data []byte, err error, whole string) (field, broken string) {
	field = errorField(err)
	semantic, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return field, givenTwice
	case errors.Is(err, json.ErrUnknownName):
		return field, "unknown name"
	case ok:
	case jsontext.Value(data).IsValid(lenient) && utf8.Valid(data): // nothing else is left
		return cmp.Or(field, whole), unpairedSurrogate
	default:
		return whole, "must be valid JSON"
	}
	field = cmp.Or(field, whole)
	switch semantic.GoType.Kind() {
	case reflect.Bool:
		return field, "must be true or false"
	case reflect.Int64:
		return field, "must be a whole number"
	case reflect.String:
		return field, "must be a string"
	case reflect.Slice:
		return field, "must be an array of strings"
	}
	return field, "must be an object"
}

// errorField returns where an error of the library is, in the form guard.key.
// What a client sent is shortened.
func errorField(err error) string {
	var at jsontext.Pointer
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		at = e.JSONPointer
	} else if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = e.JSONPointer
	}
	return shortened(strings.Join(slices.Collect(at.Tokens()), "."))
}

// shortened bounds a name that a client chose.
func shortened(field string) string {
	const maxField = 64
	if len(field) > maxField {
		field = strings.ToValidUTF8(field[:maxField], "") + "…"
	}
	return field
}

// Raw is a JSON value as it was written; nil is null. Decoding copies it, into the memory
// that is there if that is large enough.
type Raw = jsontext.Value

var null = []byte("null")

// messages returns one empty value of each type of the protocol.
func messages() []any {
	return []any{
		new(NonceAttempt), new(AllocateResult), new(Reissued), new(MarkResult), new(ExtendResult), new(RepairResult),
		new(Was), new(Offer), new(StatusResult), new(ChainStatus), new(Gap), new(Allocation),
		new(ListResult), new(FloorResult), new(Event), new(InfoResult), new(NodeInfo), new(Limits), new(Figure),
		new(StatsResult), new(EngineStats), new(Error), new(ErrorData), new(HoldState),
		new(AllocateParams), new(MarkUsedParams), new(MarkRecyclableParams), new(MarkSignedParams),
		new(ExtendParams), new(RepairParams), new(StatusParams),
		new(ListParams), new(SetFloorParams), new(SubscribeParams), new(UnsubscribeParams), new(NoParams), new(Guard),
	}
}

// WarmUp compiles the codec of every type of the protocol. Call it once before
// serving: otherwise each goroutine that is among the first to meet a type
// compiles it for itself.
func WarmUp() error {
	for _, m := range messages() {
		if err := json.MarshalWrite(io.Discard, m, encoding); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte("{}"), m); err != nil {
			return err
		}
	}
	return nil
}
