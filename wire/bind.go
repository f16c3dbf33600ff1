package wire

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// strict refuses names that v has no field for. strictOutside lets pass, inside of
// what it knows, what lenient does.
var (
	strict        = json.RejectUnknownMembers(true)
	strictOutside = json.JoinOptions(strict, lenient)
)

// bind decodes params into v, a struct whose fields have the names given, in the
// order of the positional form. The three forms end as one object by name: as it
// is, taken out of an array that holds nothing else, or put together from the
// positions.
func bind[T any](params []byte, v *T, names ...string) *Error {
	return bindBy(strict, params, v, names)
}

// bindOuter is bind for a struct with Raw fields: what is wrong inside of these is
// left to who decodes them.
func bindOuter[T any](params []byte, v *T, names ...string) *Error {
	return bindBy(strictOutside, params, v, names)
}

func bindBy[T any](how json.Options, params []byte, v *T, names []string) *Error {
	object, err := byName(params, names)
	if err != nil {
		return err
	}
	return bindObject(how, object, v)
}

func bindObject[T any](how json.Options, object []byte, v *T) *Error {
	if err := json.UnmarshalOf(object, v, how); err != nil {
		return paramsError(object, err)
	}
	return nil
}

func byName(params []byte, names []string) ([]byte, *Error) {
	if object, ok := single(params); ok {
		return object, nil
	}
	if jsontext.Value(params).Kind() == jsontext.KindBeginArray {
		return fromPositions(params, names)
	}
	return nil, invalidParams("params", "must be an object or an array")
}

// single returns the object that params are or hold as their only element. No
// params are an empty object.
func single(params []byte) ([]byte, bool) {
	switch jsontext.Value(params).Kind() {
	case jsontext.KindBeginObject:
		return params, true
	case jsontext.KindBeginArray:
		array := bytes.Trim(params, whitespace)
		inner := jsontext.Value(array[1:max(1, len(array)-1)])
		return inner, array[len(array)-1] == ']' && inner.Kind() == jsontext.KindBeginObject && inner.IsValid(lenient)
	}
	return emptyObject, len(params) == 0
}

var emptyObject = []byte("{}")

// whitespace is what JSON takes for it.
const whitespace = " \t\r\n"

// fromPositions makes the object that says by name what the array says by
// position. null stands for a parameter that is not given.
func fromPositions(params []byte, names []string) ([]byte, *Error) {
	object := make([]byte, 0, len(params)+16*len(names))
	object = append(object, '{')
	given := 0
	err := elements(params, func(i int, element []byte) error {
		given++
		if i >= len(names) || string(element) == "null" {
			return nil
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(append(object, '"'), names[i]...), `":`...)
		object = append(object, element...)
		return nil
	})
	if err != nil {
		return nil, paramsError(params, err)
	}
	if given > len(names) {
		return nil, invalidParams("params", fmt.Sprintf("%d given by position, at most %d allowed", given, len(names)))
	}
	return append(object, '}'), nil
}

// splitter reads the elements of arrays.
type splitter struct {
	src bytes.Reader
	dec *jsontext.Decoder
}

var splitters = sync.Pool{New: func() any {
	s := new(splitter)
	s.dec = jsontext.NewDecoder(&s.src, lenient)
	return s
}}

// split reads the array or object data: past its first token, by read as long as
// there is something before end, and past end, behind which nothing may follow.
func split(data []byte, end jsontext.Kind, read func(i int, dec *jsontext.Decoder) error) error {
	s := splitters.Get().(*splitter)
	defer func() {
		s.src.Reset(nil)
		splitters.Put(s)
	}()
	s.src.Reset(data)
	s.dec.Reset(&s.src, lenient)
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; s.dec.PeekKind() != end; i++ {
		if err := read(i, s.dec); err != nil {
			return err
		}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(data[s.dec.InputOffset():], whitespace); len(rest) > 0 {
		return &jsontext.SyntacticError{ByteOffset: int64(len(data) - len(rest)), Err: errTrailing}
	}
	return nil
}

// Elements calls yield with each element of the JSON array data, in order, until it
// returns an error, which is then the result. An element is valid JSON, but for names
// given twice, and may be used only until yield returns. It costs the memory of one
// element at a time: whoever reads an array from a client can stop at any number.
func Elements(data []byte, yield func(i int, element []byte) error) error {
	if jsontext.Value(data).Kind() != jsontext.KindBeginArray {
		return errNoArray
	}
	return elements(data, yield)
}

var errNoArray = errors.New("not an array")

// elements is Elements for what is known to begin as an array.
func elements(data []byte, yield func(i int, element []byte) error) error {
	return split(data, jsontext.KindEndArray, func(i int, dec *jsontext.Decoder) error {
		element, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return yield(i, element)
	})
}

// eachMember calls yield with each member of the JSON object data, in order. A value
// is as an element of elements.
func eachMember(data []byte, yield func(name string, value []byte)) error {
	return split(data, jsontext.KindEndObject, func(_ int, dec *jsontext.Decoder) error {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String() // before the next read, which ends the token
		value, err := dec.ReadValue()
		if err == nil {
			yield(name, value)
		}
		return err
	})
}

var errTrailing = errors.New("data after the array or object")

func invalidParams(field, rule string) *Error {
	return fieldError(CodeInvalidParams, field, rule)
}

// paramsError turns an error of the library about params into the sentence for it.
func paramsError(params []byte, err error) *Error {
	return invalidParams(brokenRule(params, err, "params"))
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
	if broken, ok := errors.AsType[rule](err); ok {
		return field, string(broken)
	}
	switch semantic.GoType.Kind() {
	case reflect.Bool:
		return field, "must be true or false"
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
