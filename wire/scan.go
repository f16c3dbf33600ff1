package wire

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// lenient lets names be given twice and strings have unpaired surrogates: it tells
// what is not JSON from what is only not a request. It lets invalid UTF-8 pass too,
// which is looked for apart.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// isJSON reports whether data is JSON by the lenient rules.
func isJSON(data []byte) bool {
	if jsontext.Value(data).Kind() != jsontext.KindBeginObject {
		return jsontext.Value(data).IsValid(lenient)
	}
	var skipped struct{} // this is faster, and nearly every frame is an object
	return json.UnmarshalOf(data, &skipped, lenient) == nil
}

// notJSON is why data is not even JSON by the lenient rules, and at which byte; nil if it is.
func notJSON(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data), lenient)
	if _, err := dec.ReadValue(); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], whitespace); len(rest) > 0 {
		return &jsontext.SyntacticError{ByteOffset: int64(len(data) - len(rest)), Err: errTrailing}
	}
	return nil
}

var errTrailing = errors.New("data after the value")

// parts walks an array or an object that is valid JSON: next returns its elements, or its
// names and values in turn, and nil behind the last one.
type parts struct{ rest []byte }

// partsOf walks data, of which the first byte but whitespace is a bracket.
func partsOf(data []byte) parts {
	for data[0] <= ' ' {
		data = data[1:]
	}
	return parts{data[1:]}
}

func (p *parts) next() []byte {
	rest := p.rest
	for i, b := range rest {
		switch b {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		case ']', '}':
			return nil
		}
		n := i + valueLen(rest[i:])
		p.rest = rest[n:]
		return rest[i:n]
	}
	return nil
}

// whitespace is what JSON takes for it.
const whitespace = " \t\r\n"

// valueLen is how long the JSON value is that data, which is not empty, begins with. Of what is
// no JSON it is some length from 1 to all of it.
func valueLen(data []byte) int {
	switch data[0] {
	case '"':
		return stringLen(data)
	case '[', '{':
	default:
		for i, b := range data {
			if b == ',' || b <= ' ' || b == '}' || b == ']' || b == ':' {
				return max(i, 1)
			}
		}
		return len(data)
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += stringLen(data[i:]) - 1
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(data)
}

// stringLen is how long the string is that data begins with.
func stringLen(data []byte) int {
	for i := 1; i < len(data); i++ {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			break
		}
		i += n
		before := i
		for data[before-1] == '\\' {
			before--
		}
		if (i-before)%2 == 0 {
			return i + 1
		}
	}
	return len(data)
}

// unquote returns the content of a valid JSON string, which is part of quoted
// unless there are escapes in it.
func unquote(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	content, _ := jsontext.AppendUnquote(nil, quoted)
	return content
}

// unpaired reports whether v, a JSON value in UTF-8, is a string with an unpaired
// surrogate.
func unpaired(v []byte) bool {
	return len(v) > 0 && v[0] == '"' && bytes.IndexByte(v, '\\') >= 0 && !jsontext.Value(v).IsValid()
}

// The rules that hold for every name and every string.
const (
	givenTwice        = "given twice"
	unpairedSurrogate = `must not contain an unpaired surrogate ("\ud800" to "\udfff")`
)

// The rules of a number.
const (
	notNumber    = `must be a number or a "0x" quantity`
	notWhole     = "must be a whole number without fraction or exponent"
	negative     = "must not be negative"
	tooLarge     = "must be at most 9223372036854775807"
	noHexDigits  = `must have a digit after "0x"`
	leadingZeros = `must not have leading zeros after "0x"`
	notHexDigits = `must have only hexadecimal digits after "0x"`
)

// parseNumber reads a number from 0 to 2^63-1, written as a JSON number or, as Ethereum
// nodes do, as a "0x" quantity. rule is the one that value, which is valid JSON, breaks; ""
// if none.
func parseNumber(value []byte) (n int64, rule string) {
	switch b := value[0]; {
	case b == '"':
		return parseQuantity(unquote(value))
	case b == '-':
		return 0, negative
	case b < '0' || b > '9':
		return 0, notNumber
	case !whole(value):
		return 0, notWhole
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, tooLarge // the syntax of JSON leaves nothing else
	}
	return n, ""
}

// whole reports whether a JSON number has neither a fraction nor an exponent.
func whole(number []byte) bool {
	for _, b := range number {
		if b == '.' || b|0x20 == 'e' {
			return false
		}
	}
	return true
}

func parseQuantity(s []byte) (n int64, rule string) {
	digits, ok := bytes.CutPrefix(s, []byte("0x"))
	switch {
	case !ok:
		return 0, notNumber
	case len(digits) == 0:
		return 0, noHexDigits
	case digits[0] == '0' && len(digits) > 1:
		return 0, leadingZeros
	}
	v, err := strconv.ParseUint(string(digits), 16, 63)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, tooLarge
	case err != nil:
		return 0, notHexDigits
	}
	return int64(v), ""
}

// Elements calls yield with each element of the JSON array data, in order, until it
// returns an error, which is then the result. Nothing is yielded of what is no array. An element is valid JSON, but for names
// given twice, and is part of data.
func Elements(data []byte, yield func(i int, element []byte) error) error {
	if jsontext.Value(data).Kind() != jsontext.KindBeginArray {
		return errNoArray
	}
	if !isJSON(data) {
		return notJSON(data)
	}
	p := partsOf(data)
	for i, e := 0, p.next(); e != nil; i, e = i+1, p.next() {
		if err := yield(i, e); err != nil {
			return err
		}
	}
	return nil
}

var errNoArray = errors.New("not an array")
