package nonce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The stored form of a signer's live state, about 5 bytes for an ordinary hold.
//
// First a byte with the version of the form, 1, then the entries, then a CRC-32C of all
// before it, 4 bytes, big endian. Of each entry:
//
//	uvarint   nonce, less that of the entry before and 1; of the first, the nonce
//	byte      flags: 1 RELEASED, else HELD; 2 the attempt is 1; 4 the holder is that of
//	          the entry before, or of the first entry none; 8 there are hashes;
//	          the upper four bits are the reason, by its index in liveReasons, or 15; or 14,
//	          where there is an earlier hold that was not accounted for
//	uvarint   attempt, unless it is 1
//	varint    of a HELD one, its deadline in Unix milliseconds, less that of the last
//	          HELD one before, or 0
//	8 bytes   holder, big endian, unless it is that of the entry before
//	          where there is an earlier hold:
//	byte      the lower four bits are the reason of the entry; 16 a repair ended the earlier
//	          hold; 32 there is a hash of it
//	uvarint   its attempt, which the entry's is that much above
//	32 bytes  its hash, where there is one
//	uvarint   and as many bytes: the reason, where its number is 15
//	byte      where there are hashes, how many, and 32 bytes each: the newest, and then
//	          those that it replaced, oldest first
//
// There is one form of a state only. What else could be read is refused.
const liveVersion = 1

const (
	liveReleased = 1 << iota
	liveFirst
	liveSameHolder
	liveHashes

	liveReasonShift = 4
	liveEarlier     = 14
	liveOtherReason = 15

	earlierReason   = 15 // a mask
	earlierRepaired = 16
	earlierHash     = 32
)

// liveReasons are those that have a number, below liveEarlier. They are only added to.
var liveReasons = []string{
	"", ReasonRecordFirst, ReasonForwarded, ReasonRepair, ReasonUnknown, ReasonExpired, ReasonNotRecorded, ReasonUnseen,
	ReasonInDoubt,
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrLive is what a stored live state cannot be read for: it was damaged, or a later
// version of the gateway wrote it. It must not be guessed.
var ErrLive = errors.New("the stored state of the signer cannot be read")

// AppendLive appends the stored form of entries, which are ascending by nonce. No entry is
// an empty form, of no bytes.
func AppendLive(b []byte, live []Entry) []byte {
	if len(live) == 0 {
		return b
	}
	from := len(b)
	b = append(b, liveVersion)
	next, until, holder := int64(0), int64(0), Principal(0)
	for i := range live {
		e := &live[i]
		b = binary.AppendUvarint(b, uint64(e.Nonce-next))
		next = e.Nonce + 1
		reason, hashes := 0, 0
		if e.Note != nil {
			reason, hashes = reasonNumber(e.Note.Reason), noteHashes(e.Note)
		}
		flags, earlier := byte(reason)<<liveReasonShift, e.Earlier()
		if earlier != nil {
			flags = liveEarlier << liveReasonShift
		}
		flags |= flag(liveReleased, e.Status == Released) | flag(liveFirst, e.Attempt == 1) |
			flag(liveSameHolder, e.Holder == holder) | flag(liveHashes, hashes > 0)
		b = append(b, flags)
		if e.Attempt != 1 {
			b = binary.AppendUvarint(b, uint64(e.Attempt))
		}
		if e.Status == Held {
			b = binary.AppendVarint(b, e.Until-until)
			until = e.Until
		}
		if e.Holder != holder {
			b = binary.BigEndian.AppendUint64(b, uint64(e.Holder))
			holder = e.Holder
		}
		if earlier != nil {
			b = appendEarlier(b, e, byte(reason))
		}
		if reason == liveOtherReason {
			b = append(binary.AppendUvarint(b, uint64(len(e.Note.Reason))), e.Note.Reason...)
		}
		if hashes > 0 {
			b = append(append(append(b, byte(hashes)), e.Note.TxHash[:]...), e.Note.Replaced...)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

func appendEarlier(b []byte, e *Entry, reason byte) []byte {
	was := e.Note.Earlier
	hashed := was.TxHash != TxHash{}
	b = append(b, reason|flag(earlierRepaired, was.Reason == ReasonRepair)|flag(earlierHash, hashed))
	b = binary.AppendUvarint(b, uint64(e.Attempt-was.Attempt))
	if hashed {
		b = append(b, was.TxHash[:]...)
	}
	return b
}

func flag(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

func reasonNumber(reason string) int {
	for i, r := range liveReasons {
		if r == reason {
			return i
		}
	}
	return liveOtherReason
}

func noteHashes(n *Note) int {
	if n.TxHash == (TxHash{}) {
		return 0
	}
	return 1 + n.Replaced.Len()
}

// ParseLive reads what AppendLive wrote. next is the signer's cursor, which all entries
// are below. The error is an ErrLive.
func ParseLive(b []byte, next int64) ([]Entry, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != liveVersion {
		return nil, fmt.Errorf("%w: its form is of version %d, and this gateway knows %d", ErrLive, b[0], liveVersion)
	}
	body := len(b) - crc32.Size
	if body < 1 || binary.BigEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], castagnoli) {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrLive)
	}
	r := liveReader{left: b[1:body]}
	live := make([]Entry, 0, len(r.left)/4)
	for len(r.left) > 0 && !r.bad {
		live = append(live, r.entry())
	}
	if r.bad || len(live) == 0 || live[len(live)-1].Nonce >= next {
		return nil, fmt.Errorf("%w: it is not what a gateway writes", ErrLive)
	}
	return live, nil
}

// liveReader reads entries one after the other.
type liveReader struct {
	left   []byte
	bad    bool
	next   uint64
	until  int64
	holder Principal
}

func (r *liveReader) entry() (e Entry) {
	n := r.next + r.uvarint()
	if n < r.next || n >= math.MaxInt64 {
		r.bad = true
	}
	r.next, e.Nonce, e.Status, e.Attempt = n+1, int64(n), Held, 1
	flags := r.bytes(1)[0]
	if flags&liveReleased != 0 {
		e.Status = Released
	}
	if flags&liveFirst == 0 {
		a := r.uvarint()
		e.Attempt = int64(a)
		if a < 2 || a > math.MaxInt64 {
			r.bad = true
		}
	}
	if e.Status == Held {
		r.until += r.varint()
		if e.Until = r.until; e.Until == 0 {
			r.bad = true
		}
	}
	if flags&liveSameHolder == 0 {
		holder := Principal(binary.BigEndian.Uint64(r.bytes(8)))
		r.bad = r.bad || holder == r.holder
		r.holder = holder
	}
	e.Holder, e.Note = r.holder, r.note(e.Attempt, int(flags>>liveReasonShift), flags&liveHashes != 0)
	return e
}

func (r *liveReader) note(attempt int64, reason int, hashes bool) *Note {
	n := new(Note)
	if reason == liveEarlier {
		n.Earlier, reason = r.earlier(attempt)
	}
	switch {
	case reason == liveOtherReason:
		size := r.uvarint()
		if size > MaxReasonBytes {
			r.bad, size = true, 0
		}
		n.Reason = string(r.bytes(int(size)))
		r.bad = r.bad || reasonNumber(n.Reason) != liveOtherReason
	case reason < len(liveReasons):
		n.Reason = liveReasons[reason]
	default:
		r.bad = true
	}
	if hashes {
		count := int(r.bytes(1)[0])
		if count < 1 || count > MaxHashes {
			r.bad, count = true, 1
		}
		n.TxHash, n.Replaced = SplitHashes(append([]byte(nil), r.bytes(count*len(n.TxHash))...))
		r.bad = r.bad || n.TxHash == TxHash{}
	}
	if *n == (Note{}) {
		return nil
	}
	return n
}

// earlier reads the hold before an attempt, and the reason of the entry.
func (r *liveReader) earlier(attempt int64) (was *Earlier, reason int) {
	flags, before := r.bytes(1)[0], r.uvarint()
	r.bad = r.bad || flags >= 2*earlierHash || before >= uint64(attempt)
	was = &Earlier{Attempt: attempt - int64(before), Reason: ReasonUnseen}
	if flags&earlierRepaired != 0 {
		was.Reason = ReasonRepair
	}
	if flags&earlierHash != 0 {
		was.TxHash = TxHash(r.bytes(len(was.TxHash)))
		r.bad = r.bad || was.TxHash == TxHash{}
	}
	return was, int(flags & earlierReason)
}

// bytes takes n bytes; of what ends before, zeros, and it is bad.
func (r *liveReader) bytes(n int) []byte {
	if len(r.left) < n {
		r.bad, r.left = true, nil
		return make([]byte, n)
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *liveReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 || n > 1 && r.left[n-1] == 0 { // a longer form of the same number
		r.bad, r.left = true, nil
		return 0
	}
	r.left = r.left[n:]
	return v
}

func (r *liveReader) varint() int64 {
	u := r.uvarint()
	if u&1 != 0 {
		return ^int64(u >> 1)
	}
	return int64(u >> 1)
}
