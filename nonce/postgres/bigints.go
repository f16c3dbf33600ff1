package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// bigints is a bigint[] parameter. The driver writes an array element by element through an
// interface, which took a tenth of a gateway's time under load; this is one loop. Only a
// connection that knows the type (teachBigints) takes it.
type bigints []int64

// bigintsCodec is the codec of bigint[] that knows bigints; the driver's own does all else.
type bigintsCodec struct{ pgtype.Codec }

// teachBigints has a connection use it.
func teachBigints(conn *pgx.Conn) {
	types := conn.TypeMap()
	if t, ok := types.TypeForOID(pgtype.Int8ArrayOID); ok {
		types.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: bigintsCodec{t.Codec}})
	}
}

// PlanEncode implements pgtype.Codec.
func (c bigintsCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(bigints); ok && format == pgtype.BinaryFormatCode {
		return encodeBigints{}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type encodeBigints struct{}

// Encode implements pgtype.EncodePlan: the header of an array of one dimension without NULLs,
// and each element behind its length.
func (encodeBigints) Encode(value any, buf []byte) ([]byte, error) {
	numbers := value.(bigints)
	buf = slices.Grow(buf, 20+12*len(numbers))
	put := func(v uint32) { buf = binary.BigEndian.AppendUint32(buf, v) }
	if len(numbers) == 0 {
		put(0)
		put(0)
		put(pgtype.Int8OID)
		return buf, nil
	}
	put(1)
	put(0)
	put(pgtype.Int8OID)
	put(uint32(len(numbers))) // #nosec G115 -- a parameter is far below 2^31 elements
	put(1)
	for _, n := range numbers {
		put(8)
		buf = binary.BigEndian.AppendUint64(buf, uint64(n)) // #nosec G115 -- as it is
	}
	return buf, nil
}
