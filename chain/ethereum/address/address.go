// Package address reads and spells the addresses of Ethereum accounts, and has the
// hash that Ethereum uses.
//
// It imports no signature code, so a package that only has to read a name can use it.
// Everything in it is a pure function: safe for many goroutines.
package address

import (
	"encoding/hex"
	"errors"
	"strings"

	"golang.org/x/crypto/sha3"
)

// Address is the address of an account: the last 20 bytes of the hash of its public
// key, or of what made the contract.
type Address [20]byte

// digits is the length of a spelled address behind its 0x.
const digits = 2 * len(Address{})

// ErrForm says that a text is no address; ErrChecksum that it looks like one and was
// mistyped.
var (
	ErrForm     = errors.New("must be 0x and 40 hexadecimal digits")
	ErrChecksum = errors.New("has letters of both cases, and they are not its checksum (EIP-55): a character is mistyped, " +
		"or the case of a letter was changed. Copy the address again; all letters in lower case are taken without a check")
)

// Parse reads an address, 0x or 0X and 40 hexadecimal digits. Where letters of both
// cases are used they must be the checksum of EIP-55; letters of one case alone carry
// no checksum and are taken as they are. The error is ErrForm or ErrChecksum.
func Parse(s string) (Address, error) {
	var a Address
	if len(s) != 2+digits || s[0] != '0' || (s[1] != 'x' && s[1] != 'X') {
		return Address{}, ErrForm
	}
	if _, err := hex.Decode(a[:], []byte(s[2:])); err != nil {
		return Address{}, ErrForm
	}
	mixed := strings.ContainsAny(s[2:], "abcdef") && strings.ContainsAny(s[2:], "ABCDEF")
	if mixed && Checksum(a)[2:] != s[2:] {
		return Address{}, ErrChecksum
	}
	return a, nil
}

// String returns 0x and 40 lower-case digits, the spelling in signers' names.
func (a Address) String() string {
	var b [2 + digits]byte
	b[0], b[1] = '0', 'x'
	hex.Encode(b[2:], a[:])
	return string(b[:])
}

// Checksum returns the spelling of EIP-55, as people are shown it: a letter is in
// upper case where the hash of the lower-case digits has a 1 as the highest bit of
// that place.
func Checksum(addr [20]byte) string {
	spelled := []byte(Address(addr).String())
	hash := Keccak256(spelled[2:])
	for i := range digits {
		place := hash[i/2] << (4 * (i % 2)) // the place's four bits are the upper ones
		if c := &spelled[2+i]; *c >= 'a' && place >= 0x80 {
			*c -= 'a' - 'A'
		}
	}
	return string(spelled)
}

// Keccak256 returns the hash that Ethereum uses, of the parts one after the other. It
// is not SHA3-256 of FIPS 202, whose padding differs.
func Keccak256(parts ...[]byte) (hash [32]byte) {
	h := sha3.NewLegacyKeccak256()
	for _, p := range parts {
		_, _ = h.Write(p) // a hash takes every byte; its error is always nil
	}
	h.Sum(hash[:0])
	return hash
}
