package postgres

import (
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
