package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// strict refuses names that v has no field for.
var strict = json.RejectUnknownMembers(true)

// bind decodes params into v, a struct whose fields have the names given, in the
// order of the positional form. The three forms end as one object by name: as it
// is, taken out of an array that holds nothing else, or put together from the
// positions.
func bind[T any](params []byte, v *T, names ...string) *Error {
	object, err := byName(params, names)
	if err != nil {
		return err
	}
	return bindObject(object, v)
}

func bindObject[T any](object []byte, v *T) *Error {
	if err := json.UnmarshalOf(object, v, strict); err != nil {
		return paramsError(err)
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
		return nil, paramsError(err)
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

// Elements calls yield with each element of the JSON array data, in order, until it
// returns an error, which is then the result. An element is valid JSON, but for names
// given twice, and may be used only until yield returns. It costs the memory of one
// element at a time: whoever reads arrays of strangers can stop at any number.
func Elements(data []byte, yield func(i int, element []byte) error) error {
	if jsontext.Value(data).Kind() != jsontext.KindBeginArray {
		return errNoArray
	}
	return elements(data, yield)
}

var errNoArray = errors.New("not an array")

// elements is Elements for what is known to begin as an array.
func elements(data []byte, yield func(i int, element []byte) error) error {
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
	for i := 0; s.dec.PeekKind() != jsontext.KindEndArray; i++ {
		element, err := s.dec.ReadValue()
		if err != nil {
			return err
		}
		if err := yield(i, element); err != nil {
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

var errTrailing = errors.New("data after the array")

func invalidParams(field, rule string) *Error {
	return fieldError(CodeInvalidParams, reasonInvalidParams, field, rule)
}

// paramsError turns an error of the library into the sentence for it.
func paramsError(err error) *Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalidParams(errorField(err), "given twice")
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return invalidParams("params", "must be valid JSON")
	}
	field := errorField(err)
	if errors.Is(err, json.ErrUnknownName) {
		return invalidParams(field, "unknown name")
	}
	if broken, ok := errors.AsType[rule](err); ok {
		return invalidParams(field, string(broken))
	}
	switch semantic.GoType.Kind() {
	case reflect.Bool:
		return invalidParams(field, "must be true or false")
	case reflect.Slice:
		return invalidParams(field, "must be an array of strings")
	}
	return invalidParams(field, "must be an object")
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
	const maxField = 64
	field := strings.Join(slices.Collect(at.Tokens()), ".")
	if len(field) > maxField {
		field = strings.ToValidUTF8(field[:maxField], "") + "…"
	}
	return field
}
