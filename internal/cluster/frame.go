package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"noncegate/internal/events"
	"noncegate/nonce"
)

// The messages of a handshake (hello.go), and the items of all messages behind it, by their first
// byte. The forms of requests, results and events are those of nonce.CodecVersion. Of itHello only
// the version, and itRefusal, are the same in every version.
const (
	itHello     = 'H' // version, random number, id of the node that dials, id of the node it means, number of the link
	itChallenge = 'C' // random number
	itProof     = 'P' // database, proof of the node that dials
	itWelcome   = 'W' // proof of the other
	itRefusal   = 'X' // status, sentence

	itRequest  = 'q' // id, path, request
	itInterest = 'i' // its number, 0 and the signers, or 1 for all
	itResult   = 'r' // id, sum of the request, result
	itEvent    = 'e' // how many were missed before it, event
	itHave     = 'h' // number of the interest that is served from here on
)

const (
	// maxFrame bounds one message: the interest of the most signers has 132 KiB, burstOps requests with the
	// longest texts 200 KiB, the result of 256 nonces of which each has an earlier hold 30 KiB.
	maxFrame = 1 << 20
	// fullFrame is how long a message is when nothing more is put into it.
	fullFrame = 64 << 10
)

// errNonsense says that the other node sent what cannot be understood. It may have been the answer
// to any request, so the link ends.
var errNonsense = errors.New("the node sent what cannot be understood")

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNonsense}, args...)...)
}

// frame is what is left to read of a message. After the first error all is zero.
type frame struct {
	b   []byte
	err error
}

func (f *frame) fail(err error) {
	if f.err == nil {
		f.err = nonsense("%w", err)
	}
	f.b = nil
}

var errShort = errors.New("it ends too early")

func (f *frame) take(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.fail(errShort)
		return nil
	}
	raw := f.b[:n]
	f.b = f.b[n:]
	return raw
}

func (f *frame) tag() byte {
	if raw := f.take(1); raw != nil {
		return raw[0]
	}
	return 0
}

func (f *frame) number() uint64 {
	n, size := binary.Uvarint(f.b)
	if size <= 0 {
		f.fail(errShort)
		return 0
	}
	f.b = f.b[size:]
	return n
}

func (f *frame) sum() uint64 {
	if raw := f.take(8); raw != nil {
		return binary.BigEndian.Uint64(raw)
	}
	return 0
}

func (f *frame) text() string { return string(f.take(f.number())) }

// read reads one form of package nonce.
func read[T any](f *frame, of func([]byte, *T) ([]byte, error), to *T) {
	if f.err != nil {
		return
	}
	rest, err := of(f.b, to)
	if f.b = rest; err != nil {
		f.fail(err)
	}
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// interest is what the clients of a node want to hear of. It is never changed.
type interest struct {
	seq uint64 // later ones are higher
	events.Interest
}

func (i *interest) empty() bool { return !i.All && len(i.Signers) == 0 }

func (i *interest) append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, itInterest), i.seq)
	if i.All {
		return append(b, 1)
	}
	b = binary.AppendUvarint(append(b, 0), uint64(len(i.Signers)))
	for _, s := range i.Signers {
		b = appendText(b, s)
	}
	return b
}

func (f *frame) interest() *interest {
	i := &interest{seq: f.number()}
	switch f.tag() {
	case 1:
		i.All = true
	case 0:
		for n := f.number(); n > 0 && f.err == nil; n-- {
			s := f.text()
			if parsed, err := nonce.ParseSigner(s); err != nil || parsed != s || len(i.Signers) == events.MaxSigners {
				f.fail(fmt.Errorf("an interest in the signer %.140q, number %d", s, len(i.Signers)+1))
			}
			i.Signers = append(i.Signers, s)
		}
	default:
		f.fail(errors.New("an interest of an unknown form"))
	}
	return i
}
