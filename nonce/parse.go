package nonce

import (
	"encoding/hex"
	"errors"
	"strconv"
	"unicode/utf8"
)

// MaxKeyBytes bounds signers and request ids.
const MaxKeyBytes = 128

// MaxReasonBytes bounds the reason of a release.
const MaxReasonBytes = 256

var (
	errKeyEmpty  = errors.New("must not be empty")
	errKeyLong   = errors.New("must be at most 128 characters")
	errKeyChars  = errors.New("must be visible ASCII characters only, no spaces")
	errTxHash    = errors.New("must be 0x and 64 hexadecimal digits")
	errPrincipal = errors.New("must be 16 lower-case hexadecimal digits, not all of them 0")
	errReason    = errors.New("must be at most 256 bytes of UTF-8 without control characters")
	errZeroHash  = errors.New("must not be all zeros")
)

// ErrZeroHash: a transaction hash of all zeros stands for none.
var ErrZeroHash = errZeroHash

// ParseRequestID checks a request id: 1 to 128 visible ASCII characters.
func ParseRequestID(s string) (string, error) { return s, checkKey(s) }

func checkKey(s string) error {
	switch {
	case s == "":
		return errKeyEmpty
	case len(s) > MaxKeyBytes:
		return errKeyLong
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return errKeyChars
		}
	}
	return nil
}

// ParseReason checks the reason of a release: at most 256 bytes of UTF-8 without
// control characters.
func ParseReason(s string) (string, error) {
	if len(s) > MaxReasonBytes || !utf8.ValidString(s) {
		return "", errReason
	}
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return "", errReason
		}
	}
	return s, nil
}

// ParseTxHash reads a transaction hash, 0x and 64 hexadecimal digits in either
// case. The hash of all zeros, which no transaction has, is refused: it stands
// for none.
func ParseTxHash(s string) (TxHash, error) {
	var h TxHash
	if len(s) != 66 || s[0] != '0' || (s[1] != 'x' && s[1] != 'X') {
		return TxHash{}, errTxHash
	}
	if _, err := hex.Decode(h[:], []byte(s[2:])); err != nil {
		return TxHash{}, errTxHash
	}
	if h == (TxHash{}) {
		return TxHash{}, errZeroHash
	}
	return h, nil
}

// ParsePrincipal reads a Principal as its String method writes it: sixteen lower-case
// hexadecimal digits. The zero Principal, which no client has, is refused.
func ParsePrincipal(s string) (Principal, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if p := Principal(n); err == nil && p != 0 && p.String() == s {
		return p, nil
	}
	return 0, errPrincipal
}
