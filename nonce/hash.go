package nonce

import "encoding/hex"

// TxHash is a transaction hash; the zero value means none.
type TxHash [32]byte

// String returns 0x and 64 lower-case digits, or "" for the zero hash.
func (h TxHash) String() string {
	if h == (TxHash{}) {
		return ""
	}
	var b [66]byte
	b[0], b[1] = '0', 'x'
	hex.Encode(b[2:], h[:])
	return string(b[:])
}

// MaxHashes bounds the hashes that are recorded for one hand-out of a nonce.
const MaxHashes = 8

// TxHashes are hashes, 32 bytes each, one behind the other. It is a string so that
// rows stay comparable, and cost nothing where there are none.
type TxHashes string

// Len is how many there are.
func (hs TxHashes) Len() int { return len(hs) / len(TxHash{}) }

// At returns the hash with number i, from 0 on.
func (hs TxHashes) At(i int) TxHash {
	var h TxHash
	copy(h[:], hs[i*len(h):])
	return h
}

// Append returns them with h behind.
func (hs TxHashes) Append(h TxHash) TxHashes { return hs + TxHashes(h[:]) }

// Contains reports whether h is one of them.
func (hs TxHashes) Contains(h TxHash) bool {
	for i := range hs.Len() {
		if hs.At(i) == h {
			return true
		}
	}
	return false
}

// AppendHashes appends the hashes of a row as stores keep them: the newest first, then
// those that it replaced. There is nothing without a newest.
func AppendHashes(dst []byte, newest TxHash, replaced TxHashes) []byte {
	if newest == (TxHash{}) {
		return dst
	}
	return append(append(dst, newest[:]...), replaced...)
}

// SplitHashes takes apart what AppendHashes appended. What is too short for one hash is none.
func SplitHashes(b []byte) (newest TxHash, replaced TxHashes) {
	if len(b) < len(newest) {
		return TxHash{}, ""
	}
	return TxHash(b[:len(newest)]), TxHashes(b[len(newest):])
}
