package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-json/jsontext"
)

// checker judges decoded parameters one after another and keeps the first
// refusal.
type checker struct{ err *Error }

func (c *checker) refuse(field, rule string) {
	if c.err == nil {
		c.err = invalidParams(field, rule)
	}
}

func (c *checker) needText(field string, t text) string {
	if !t.given {
		c.refuse(field, "is required")
	}
	return t.value
}

func (c *checker) needNumber(field string, n number) int64 {
	if !n.given {
		c.refuse(field, "is required")
	}
	return n.value
}

func (c *checker) notEmpty(field string, t text) string {
	if t.given && t.value == "" {
		c.refuse(field, "must not be empty")
	}
	return t.value
}

// between returns n, or absent when it is not given.
func (c *checker) between(field string, n number, absent, low, high int64) int64 {
	switch {
	case !n.given:
		return absent
	case n.value < low:
		c.refuse(field, fmt.Sprintf("must be at least %d", low))
	case n.value > high:
		c.refuse(field, fmt.Sprintf("must be at most %d", high))
	}
	return n.value
}

func (c *checker) oneOf(field string, t text, words ...string) string {
	if t.given && !slices.Contains(words, t.value) {
		c.refuse(field, "must be "+strings.Join(words, " or "))
	}
	return t.value
}

func (c *checker) guard(g *guardGiven) *Guard {
	if g == nil {
		return nil
	}
	c.needText("guard.key", g.Key)
	return &Guard{
		Key:        c.notEmpty("guard.key", g.Key),
		IntervalMs: c.between("guard.intervalMs", g.IntervalMs, DefaultGuardMs, MinGuardMs, MaxGuardMs),
		Keep:       g.Keep,
	}
}

// object returns o, or an object without members when it is not given.
func (c *checker) object(field string, o Raw) []byte {
	switch jsontext.Value(o).Kind() {
	case jsontext.KindInvalid:
		return emptyObject
	case jsontext.KindBeginObject:
	default:
		c.refuse(field, "must be an object")
	}
	return o
}

// texts returns the strings of a list that may be absent, but not empty.
func (c *checker) texts(field string, list []text) []string {
	if list == nil {
		return nil
	}
	if len(list) == 0 {
		c.refuse(field, "must not be empty")
	}
	values := make([]string, len(list))
	for i, t := range list {
		values[i] = t.value
		if !t.given {
			c.refuse(field, "must be an array of strings")
		}
	}
	return values
}
