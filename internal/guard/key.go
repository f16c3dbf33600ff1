package guard

import (
	"encoding/hex"
	"strconv"
	"time"
)

// Bounds of the interval of a lock.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = 10 * time.Minute
)

// NamedKey is the key of a lock that a caller has named, whatever the method.
func NamedKey(principal, name string) string {
	return "k:" + quoted(principal) + name
}

// CallKey is the key of a call whose caller named none: calls of the same method with the
// same parameters have the same.
func CallKey(principal, method string, params [32]byte) string {
	return "c:" + quoted(principal) + method + ":" + hex.EncodeToString(params[:])
}

// quoted says where the principal ends, so that no two keys are written alike.
func quoted(principal string) string {
	return strconv.Itoa(len(principal)) + ":" + principal + ":"
}
