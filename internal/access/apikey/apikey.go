// Package apikey keeps and checks API keys: secrets of 256 bits, shown once to their
// creator and kept as a SHA-256.
//
// A [Cache] checks them without asking the store for each. It holds every key, at
// most MaxKeys. Every Config.Refresh it asks the store whether the keys changed, and
// reads them again if so. An unknown key makes it ask at once, but at most ten times
// a second, however many are tried. So a new key is valid at all nodes after a tenth
// of a second, and a revoked one stays valid for Refresh and the time of one reading
// at most. While the store is away, known keys stay valid for Config.Trust. Expiry
// follows the store's clock.
package apikey

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

const (
	// Prefix begins every key, so that people and scanners of leaked secrets know
	// what they see.
	Prefix = "nck_"
	// MaxKeys bounds the keys of a store, ended ones included until they are
	// forgotten. A node holds them all, at about 200 bytes each.
	MaxKeys = 100_000
	// MaxLive bounds the live keys of a principal: the one in use, and the next.
	MaxLive = 2
	// Remembered is how long a key stays in the list after it has ended.
	Remembered = 30 * 24 * time.Hour

	idBytes     = 8
	secretBytes = 32
	idLen       = 2 * idBytes
	textLen     = len(Prefix) + idLen + len("_") + 2*secretBytes
)

// Errors of a key, and of making one.
var (
	ErrFormat      = errors.New("this is not an API key")
	ErrUnknown     = errors.New("there is no API key of this id")
	ErrSecret      = errors.New("the secret is not that of the API key")
	ErrExpired     = errors.New("the API key has expired")
	ErrRevoked     = errors.New("the API key was revoked")
	ErrUnavailable = errors.New("the API key cannot be checked now")
	// ErrTooManyLive refuses a third live key of a principal.
	ErrTooManyLive = errors.New("the principal has two live API keys already; revoke one of them first")
	// errTooMany refuses a key beyond MaxKeys.
	errTooMany = errors.New("there are 100000 API keys already; ended ones are forgotten after 30 days")
)

// Hash is the SHA-256 of a key's text.
type Hash [sha256.Size]byte

// Key is what is kept of a key. Its times are those of the store's clock.
type Key struct {
	ID        string
	Principal string
	Hash      Hash
	Created   time.Time
	Expires   time.Time // zero: never
	Revoked   time.Time // zero: it was not
}

// Ended returns ErrRevoked, ErrExpired, or nil while the key is good at now, a time
// of the store's clock.
func (k *Key) Ended(now time.Time) error {
	switch {
	case !k.Revoked.IsZero():
		return ErrRevoked
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return ErrExpired
	}
	return nil
}

// Request asks a Store for a new key.
type Request struct {
	ID        string
	Principal string
	Hash      Hash
	Lifetime  time.Duration // 0: until it is revoked
}

// Listing is what a Store has.
type Listing struct {
	// Generation is another one after each change, and never one that was before.
	Generation int64
	// Now is the store's clock.
	Now time.Time
	// Keys are all keys, by principal and age. nil where the caller knows them.
	Keys []Key
}

// Store keeps keys. Its implementations are the stores of nonces.
type Store interface {
	// CreateKey adds a key and forgets those that ended Remembered ago. It fails
	// with ErrTooManyLive or errTooMany, and then has added nothing.
	CreateKey(ctx context.Context, r Request) (Key, error)
	// RevokeKey ends a key, once: the time of the first call stays. It fails with
	// ErrUnknown.
	RevokeKey(ctx context.Context, id string) (Key, error)
	// Keys lists all keys, unless the generation still is the one known.
	Keys(ctx context.Context, known int64) (Listing, error)
}

// Generate makes a new key for a principal. text is the only copy of the secret.
func Generate(principal string, lifetime time.Duration) (text string, r Request) {
	var b [idBytes + secretBytes]byte
	_, _ = rand.Read(b[:]) // it ends the process rather than to fail
	id := hex.EncodeToString(b[:idBytes])
	text = Prefix + id + "_" + hex.EncodeToString(b[idBytes:])
	return text, Request{ID: id, Principal: principal, Hash: sha256.Sum256([]byte(text)), Lifetime: lifetime}
}

// Is reports whether a credential claims to be an API key.
func Is(text string) bool { return strings.HasPrefix(text, Prefix) }

// Parse takes a key apart. It fails with ErrFormat, whatever is wrong.
func Parse(text string) (id string, hash Hash, err error) {
	if len(text) != textLen || !Is(text) {
		return "", Hash{}, ErrFormat
	}
	id, secret, ok := strings.Cut(text[len(Prefix):], "_")
	if !ok || !IsID(id) || !isHex(secret) {
		return "", Hash{}, ErrFormat
	}
	return id, sha256.Sum256([]byte(text)), nil
}

// IsID reports whether s has the form of a key's id.
func IsID(s string) bool { return len(s) == idLen && isHex(s) }

// isHex reports whether s is hexadecimal, in lower case: a key has one spelling.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Room returns why there is no room for another key where there are so many, and so
// many live ones of its principal: nil, there is. Stores ask it.
func Room(all, live int) error {
	switch {
	case live >= MaxLive:
		return ErrTooManyLive
	case all >= MaxKeys:
		return errTooMany
	}
	return nil
}

// NewGeneration draws the number of a new generation: above zero, and never there
// before. Stores ask it. A count would come to the same number by another change once
// a failover has lost one.
func NewGeneration() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it ends the process rather than to fail
	return max(1, int64(binary.BigEndian.Uint64(b[:])>>1))
}
