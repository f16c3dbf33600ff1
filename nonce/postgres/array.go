package postgres

import (
	"encoding/binary"
	"errors"

	"github.com/jackc/pgx/v5/pgtype"
)

var be = binary.BigEndian

// The arrays of a commit are written and read here, in the binary form of PostgreSQL: the driver does
// it element by element through an interface, into memory that it throws away.

// bigints is a bigint[] parameter of one dimension without NULLs. It begins as noBigints does.
type bigints []byte

const (
	arrayHead   = 20             // number of dimensions, whether there are NULLs, type, length, lower bound
	bigintBytes = 4 + 8          // the length of the element, and the element
	emptyArray  = 12             // the head of an array without dimensions
	intOID      = pgtype.Int4OID // of the shards
	bigintOID   = pgtype.Int8OID // of all else
)

// noBigints is an array of nothing in the memory of another one.
func noBigints(memory bigints) bigints { return append(memory[:0], make([]byte, arrayHead)...) }

func (a *bigints) add(numbers ...int64) {
	b := *a
	for _, n := range numbers {
		b = be.AppendUint32(b, 8)
		b = be.AppendUint64(b, uint64(n)) // #nosec G115 -- as it is
	}
	*a = b
}

// len is the number of elements.
func (a bigints) len() int64 { return int64(len(a)-arrayHead) / bigintBytes }

// param is the array as a parameter.
func (a bigints) param() []byte { return putHead(a, bigintOID, uint32(a.len())) } // #nosec G115 -- far below 2^31

// appendInts appends an int[] parameter.
func appendInts(dst []byte, numbers []int) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, arrayHead)...)
	for _, n := range numbers {
		dst = be.AppendUint32(dst, 4)
		dst = be.AppendUint32(dst, uint32(n)) // #nosec G115 -- a shard
	}
	return dst[:at+len(putHead(dst[at:], intOID, uint32(len(numbers))))] // #nosec G115 -- shards
}

// putHead gives an array of n elements its head, and returns it.
func putHead(array []byte, of, n uint32) []byte {
	put := func(i int, v uint32) { be.PutUint32(array[4*i:], v) }
	put(1, 0)
	put(2, of)
	if n == 0 {
		put(0, 0)
		return array[:emptyArray]
	}
	put(0, 1)
	put(3, n)
	put(4, 1)
	return array
}

var errArray = errors.New("the server's answer has another form than that of this statement")

// eachInt calls each for every element of an int[] or bigint[] that the server sent, NULL elements too.
func eachInt(array []byte, each func(n int64, null bool)) error {
	if len(array) < arrayHead { // NULL, or empty
		return nil
	}
	length, rest := int(be.Uint32(array[12:])), array[arrayHead:]
	for range length {
		if len(rest) < 4 {
			return errArray
		}
		width := int32(be.Uint32(rest)) // #nosec G115 -- -1 is NULL
		rest = rest[4:]
		switch {
		case width == -1:
			each(0, true)
			continue
		case width == 4 && len(rest) >= 4:
			each(int64(int32(be.Uint32(rest))), false) // #nosec G115 -- as it was sent
		case width == 8 && len(rest) >= 8:
			each(int64(be.Uint64(rest)), false) // #nosec G115 -- as it was sent
		default:
			return errArray
		}
		rest = rest[width:]
	}
	return nil
}
