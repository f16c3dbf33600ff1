package nonce

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// form is bytes that are written or read. After the first error reading goes on with zeros.
type form struct {
	b       []byte // what was written, or what is left to read
	reading bool
	err     error
}

// maxCodecText bounds sentences, names and addresses.
const maxCodecText = 1024

// uint is a number that is seldom large.
func (f *form) uint(v *uint64) {
	if !f.reading {
		f.b = binary.AppendUvarint(f.b, *v)
		return
	}
	n, size := binary.Uvarint(f.b)
	if size <= 0 {
		f.fail("a number that does not end")
		return
	}
	*v, f.b = n, f.b[size:]
}

// number is one that may be below zero.
func number[T ~int | ~int64](f *form, v *T) {
	n := uint64(*v)<<1 ^ uint64(int64(*v)>>63)
	if f.uint(&n); f.reading {
		*v = T(n>>1) ^ -T(n&1)
	}
}

// fixed is a number of eight bytes, or one byte where it is zero.
func (f *form) fixed(v *uint64) {
	there := *v != 0
	if f.flags(&there); !there {
		return
	}
	if !f.reading {
		f.b = binary.BigEndian.AppendUint64(f.b, *v)
	} else if raw := f.take(8); raw != nil {
		*v = binary.BigEndian.Uint64(raw)
	}
}

// small is one byte of a closed range.
func small[T ~uint8 | ~int8](f *form, v *T, least, most T) {
	if !f.reading {
		f.b = append(f.b, byte(*v))
		return
	}
	raw := f.take(1)
	if raw == nil {
		return
	}
	if n := T(raw[0]); n < least || n > most {
		f.fail("a number of %d where %d to %d are known", n, least, most)
	} else {
		*v = n
	}
}

// flags are one number together.
func (f *form) flags(all ...*bool) {
	bits := uint64(0)
	for i, flag := range all {
		if *flag {
			bits |= 1 << i
		}
	}
	f.uint(&bits)
	if !f.reading {
		return
	}
	if bits>>len(all) != 0 {
		f.fail("a flag that is not known")
		bits = 0
	}
	for i, flag := range all {
		*flag = bits>>i&1 != 0
	}
}

// take takes bytes that are read; nil: there are not so many.
func (f *form) take(n int) []byte {
	if f.err != nil || n > len(f.b) {
		f.fail("%d bytes where there are fewer", n)
		return nil
	}
	raw := f.b[:n]
	f.b = f.b[n:]
	return raw
}

// text has a bound, at which it is cut when it is written.
func (f *form) text(v *string, most int) {
	text := *v
	if !f.reading && len(text) > most {
		for text = text[:most]; !utf8.ValidString(text); {
			text = text[:len(text)-1]
		}
	}
	n := uint64(len(text))
	f.uint(&n)
	switch {
	case !f.reading:
		f.b = append(f.b, text...)
	case n > uint64(most):
		f.fail("a text of %d bytes", n)
	default:
		*v = string(f.take(int(n)))
	}
}

// signer is one as ParseSigner returns it: two spellings of one account would be two signers.
func (f *form) signer(v *string) {
	if f.text(v, MaxKeyBytes); !f.reading || f.err != nil {
		return
	}
	if s, err := ParseSigner(*v); err != nil || s != *v {
		f.fail("the signer %q", *v)
	}
}

func (f *form) hash(v *TxHash) {
	there := *v != TxHash{}
	if f.flags(&there); !there {
		return
	}
	if !f.reading {
		f.b = append(f.b, v[:]...)
	} else if raw := f.take(len(v)); raw != nil {
		*v = TxHash(raw)
	}
}

func (f *form) hashes(v *TxHashes) {
	n := uint64(v.Len())
	f.uint(&n)
	switch {
	case !f.reading:
		f.b = append(f.b, (*v)[:n*uint64(len(TxHash{}))]...)
	case n > MaxHashes:
		f.fail("%d hashes of one nonce", n)
	default:
		*v = TxHashes(f.take(int(n) * len(TxHash{})))
	}
}

// time is one of the protocol, which has milliseconds. The zero time is 0.
func (f *form) time(v *time.Time) {
	ms := int64(0)
	if !v.IsZero() {
		ms = v.UnixMilli()
	}
	if number(f, &ms); f.reading && ms != 0 {
		*v = time.UnixMilli(ms)
	}
}

// list is a number of things, each of which is at least a byte.
func list[T any](f *form, v *[]T, one func(*form, *T)) {
	n := uint64(len(*v))
	f.uint(&n)
	if f.reading {
		if n > uint64(len(f.b)) {
			f.fail("a list of %d in %d bytes", n, len(f.b))
			return
		}
		if n > 0 {
			*v = make([]T, 0, min(n, 16)) // more when it has come
		}
		for ; n > 0 && f.err == nil; n-- {
			var x T
			one(f, &x)
			*v = append(*v, x)
		}
		return
	}
	for i := range *v {
		one(f, &(*v)[i])
	}
}

// made is what a pointer points to, and when it is read a new one.
func made[T any](f *form, p **T) *T {
	if f.reading {
		*p = new(T)
	}
	return *p
}
