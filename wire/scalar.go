package wire

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/goccy/go-json/jsontext"
)

// rule is a broken rule of one parameter, as a sentence without its name.
type rule string

// Error implements error.
func (r rule) Error() string { return string(r) }

// The rules of a number.
const (
	notNumber    rule = `must be a number or a "0x" quantity`
	notWhole     rule = "must be a whole number without fraction or exponent"
	negative     rule = "must not be negative"
	tooLarge     rule = "must be at most 9223372036854775807"
	noHexDigits  rule = `must have a digit after "0x"`
	leadingZeros rule = `must not have leading zeros after "0x"`
	notHexDigits rule = `must have only hexadecimal digits after "0x"`
)

// number is a parameter from 0 to 2^63-1, written as a JSON number or, as
// Ethereum nodes do, as a "0x" quantity. null leaves it as not given.
type number struct {
	value int64
	given bool
}

// UnmarshalJSON reads one JSON value.
func (n *number) UnmarshalJSON(b []byte) (err error) {
	switch {
	case b[0] == 'n':
		return nil
	case b[0] == '"':
		n.value, err = parseQuantity(unquote(b))
	case b[0] == '-':
		err = negative
	case b[0] < '0' || b[0] > '9':
		err = notNumber
	default:
		n.value, err = parseDecimal(b)
	}
	n.given = true
	return err
}

func parseDecimal(digits []byte) (int64, error) {
	if bytes.ContainsAny(digits, ".eE") {
		return 0, notWhole
	}
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, tooLarge // JSON syntax leaves nothing else
	}
	return v, nil
}

func parseQuantity(s []byte) (int64, error) {
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
	return int64(v), nil
}

// text is a string parameter. null leaves it as not given.
type text struct {
	value string
	given bool
}

// UnmarshalJSON reads one JSON value.
func (t *text) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case 'n':
		return nil
	case '"':
		t.value, t.given = string(unquote(b)), true
		return nil
	}
	return rule("must be a string")
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
