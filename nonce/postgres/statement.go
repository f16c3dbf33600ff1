package postgres

import (
	_ "embed" // commit.sql
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/jackc/pgx/v5/pgconn"

	"noncegate/lease"
	"noncegate/nonce"
)

// form is the form of a commit: what its statement can do. There are few of them, and each is prepared
// once a connection. A statement that can do more costs the server more: beside marks and hand-outs
// alone (0), one with formIDs a tenth, one with formAll some two thirds for a batch of a few writes.
type form uint8

const (
	formIDs        form = 1 << iota // request ids, and writes that only compare
	formAll                         // with formIDs: everything but shipments
	formShips                       // with formAll: shards are shipped
	formSkipLocked                  // rows that somebody else writes are left out, and not waited for
	formBasic                       // mode basic: whoever owns the shard, and the row gets token 0
)

// name is that of the prepared statement.
func (f form) name() string { return formNames[f] }

// formNames are the names of all forms: they are not made for each commit.
var formNames = func() (names [2 * formBasic]string) {
	for f := range names {
		names[f] = fmt.Sprint("noncegate_commit_", f)
	}
	return names
}()

//go:embed commit.sql
var commitSQL string

// commitText is the statement of a form; see commit.sql.
var commitText = func() func(form) string {
	text := template.Must(template.New("commit.sql").Option("missingkey=error").Parse(commitSQL))
	var made sync.Map
	return func(f form) string {
		if t, ok := made.Load(f); ok {
			return t.(string)
		}
		var b strings.Builder
		if err := text.Execute(&b, commitNames(f)); err != nil {
			panic(err) // commit.sql is wrong
		}
		made.Store(f, b.String())
		return b.String()
	}
}()

// commitNames is what commit.sql calls by name.
func commitNames(f form) map[string]any {
	ofWrite, ofPast := f.writeNumbers(), f.pastNumbers()
	write := func(at string) map[string]string {
		all := numbers("$5", at, ofWrite)
		all["live_at"] = fmt.Sprintf("(%s + %s)", all["name_at"], all["name_len"])
		return all
	}
	w, p, q := write("o"), numbers("$6", fmt.Sprint("p*", len(ofPast)), ofPast), numbers("$7", fmt.Sprint("q*", len(askNumbers)), askNumbers)
	p["reason_at"] = fmt.Sprintf("(%s + %s)", p["hashes_at"], p["hashes_len"])
	return map[string]any{
		"IDs": f&formIDs != 0, "All": f&formAll != 0, "Ships": f&formShips != 0, "SkipLocked": f&formSkipLocked != 0, "Basic": f&formBasic != 0,
		"Step": len(ofWrite), "W": w, "X": write("x.o"), "K": write("k.o"), "Name": text(w, "name"), "Live": slice(w, "live"),
		"Past": p, "PastHashes": slice(p, "hashes"), "PastReason": text(p, "reason"),
		"AskID": text(q, "id"), "AskHash": slice(q, "hash"), "AskNonces": text(q, "nonces"),
		"Ship": numbers("$8", fmt.Sprintf("(a.place-1)*%d", len(shipNumbers)), shipNumbers),
	}
}

// numbers are the numbers of a record of an array, by their names; at is where the record begins.
func numbers(array, at string, names []string) map[string]string {
	all := make(map[string]string, len(names))
	for i, name := range names {
		all[name] = fmt.Sprintf("(%s::bigint[])[%s+%d]", array, at, i+1)
	}
	return all
}

// slice is a part of the byte string, text the same as a text: that has the collation of the keys,
// because convert_from takes the one of its second argument.
func slice(of map[string]string, name string) string {
	return fmt.Sprintf("substring($4::bytea FROM %s::int FOR %s::int)", of[name+"_at"], of[name+"_len"])
}

func text(of map[string]string, name string) string {
	return fmt.Sprintf("convert_from(%s, 'UTF8') COLLATE \"C\"", slice(of, name))
}

// The numbers of a record of each array. A live state is behind its name in the byte string, a reason
// behind its hashes. kind is 1 for a signer that has a row, 2 for one that has none, and 3 for a write
// that only compares; it is 1 where there is none.
var (
	writeNumbers = []string{
		"place", "belief", "version", "rise", "next", "floor", "ceiling", "epoch", "not_before", "past_lo", "past_hi", "name_at", "name_len", "live_len",
		"kind", "due_at", "ask_lo", "ask_hi", "watch", "watch_nonce", "watch_since", // from here on with formIDs only
	}
	shortWrite  = slices.Index(writeNumbers, "kind")
	pastNumbers = []string{"nonce", "attempt", "holder", "hashes_at", "hashes_len", "reason_len", "again"} // the last with formAll only
	askNumbers  = []string{"id_at", "id_len", "hash_at", "hash_len", "nonces_at", "nonces_len"}
	shipNumbers = []string{"belief", "head", "off", "writes"} // of each of the shards
)

func (f form) writeNumbers() []string {
	if f&formIDs == 0 {
		return writeNumbers[:shortWrite]
	}
	return writeNumbers
}

func (f form) pastNumbers() []string {
	if f&formAll == 0 {
		return pastNumbers[:len(pastNumbers)-1]
	}
	return pastNumbers
}

// needs is the form that a write needs.
func needs(w *nonce.Write) (f form) {
	if w.Check || len(w.Requests) > 0 {
		f |= formIDs
	}
	again := func(h nonce.Past) bool { return h.Again }
	if !w.Check && w.Believed() == 0 || w.DueAt != 0 || w.Watch.Kind != nonce.WatchAsIs || slices.ContainsFunc(w.History, again) {
		f |= formIDs | formAll
	}
	return f
}

// packed are the parameters of a commit, and the memory of the commits of one connection, which is used
// again.
type packed struct {
	form                form
	shards              []int
	blob                []byte
	writes, past, asked bigints
	ships               bigints
	order               []int // of the writes, as they are packed: rows are locked in order of name
	places              []int // of the shard of each write in shards, from 1; in order of the writes

	values  [][]byte // the parameters
	fixed   []byte   // those that have no memory of their own
	message message
	answer  answer
}

// message is a message of no bytes that has the driver put together those behind it in the memory of
// message. It would else use new memory for each that is longer than a kilobyte. It belongs to
// the connection, because the driver keeps what is shorter.
type message []byte

// Frontend implements pgproto3.FrontendMessage.
func (*message) Frontend() {}

// Decode implements pgproto3.FrontendMessage.
func (*message) Decode([]byte) error { return nil }

// Encode implements pgproto3.FrontendMessage.
func (m *message) Encode(dst []byte) ([]byte, error) { return append((*m)[:0], dst...), nil }

// keptBytes bounds what a connection keeps of a commit.
const keptBytes = 1 << 20

// packedKey is where a connection has its packed.
const packedKey = "noncegate.packed"

// packedOf is the memory of a connection, empty.
func packedOf(conn *pgconn.PgConn) *packed {
	p, ok := conn.CustomData()[packedKey].(*packed)
	if !ok || cap(p.message) > keptBytes {
		p = &packed{blob: []byte{}, fixed: []byte{}} // nil would be NULL
		conn.CustomData()[packedKey] = p
	}
	p.form, p.shards, p.blob, p.order, p.places = 0, p.shards[:0], p.blob[:0], p.order[:0], p.places[:0]
	p.writes, p.past, p.asked = noBigints(p.writes), noBigints(p.past), noBigints(p.asked)
	return p
}

// pack packs writes in a form that all of them can be written by.
func (p *packed) pack(f form, shards int, writes []nonce.Write) {
	p.form = f
	for i := range writes {
		p.form |= needs(&writes[i])
		p.order, p.places = append(p.order, i), append(p.places, 0)
	}
	slices.SortFunc(p.order, func(a, b int) int { return strings.Compare(writes[a].Name, writes[b].Name) })
	for _, i := range p.order {
		p.add(i, shards, &writes[i])
	}
}

// params makes the parameters of what is packed.
func (p *packed) params(h lease.Holder, g nonce.Grant) {
	p.fixed, p.values = p.fixed[:0], p.values[:0]
	fixed := func(appended []byte) []byte {
		value := appended[len(p.fixed):]
		p.fixed = appended
		return value
	}
	number := func(n int64) []byte { return fixed(be.AppendUint64(p.fixed, uint64(n))) } // #nosec G115 -- as it is
	p.values = append(p.values, fixed(append(p.fixed, h.Node...)), number(h.Incarnation), fixed(appendInts(p.fixed, p.shards)),
		p.blob, p.writes.param(), p.past.param(), p.asked.param())
	if p.form&formShips != 0 {
		p.values = append(p.values, p.ships.param(), number(g.For.Milliseconds()), number(g.LongestHold.Milliseconds()))
	}
	size := 0
	for _, v := range p.values {
		size += len(v)
	}
	p.message = slices.Grow(p.message[:0], size+messageRoom)
}

// messageRoom is enough for what a commit sends beside its parameters.
const messageRoom = 256

// bytes puts bytes into the blob, and returns where they begin, from 1, and how many they are.
func (p *packed) bytes(b []byte) (from, length int64) {
	from = int64(len(p.blob)) + 1
	p.blob = append(p.blob, b...)
	return from, int64(len(b))
}

// text is bytes of a text.
func (p *packed) text(s string) (from, length int64) {
	from = int64(len(p.blob)) + 1
	p.blob = append(p.blob, s...)
	return from, int64(len(s))
}

// belief is what a writer takes for true of a shard: twice its token, and 1 more with the
// performance engine, so that one number compares both.
func belief(t lease.ShardTerm) int64 {
	if t.Performance {
		return 2*t.Token + 1
	}
	return 2 * t.Token
}

// place is the place of a shard, from 1.
func (p *packed) place(shard int) int {
	place := slices.Index(p.shards, shard) + 1
	if place == 0 {
		p.shards = append(p.shards, shard)
		place = len(p.shards)
	}
	return place
}

// add packs a write.
func (p *packed) add(i, shards int, w *nonce.Write) {
	shard := w.Term.Shard
	if shard != nonce.ShardOf(w.Name, shards) {
		shard = -1 // nobody owns it
	}
	p.places[i] = p.place(shard)
	pastLo := p.past.len() / int64(len(p.form.pastNumbers()))
	for i := range w.History {
		p.consumed(&w.History[i])
	}
	pastHi := pastLo + int64(len(w.History))
	name, nameLen := p.text(w.Name)
	live := len(p.blob)
	if !w.Check {
		p.blob = nonce.AppendLive(p.blob, w.Signer.Live)
	}
	p.writes.add(int64(p.places[i]), belief(w.Term), w.Believed(), 1+w.Rise, w.Signer.Next, w.Signer.Floor, w.Signer.Ceiling, w.Signer.Epoch, w.NotBefore,
		pastLo, pastHi, name, nameLen, int64(len(p.blob)-live))
	if p.form&formIDs == 0 {
		return
	}
	kind := int64(1)
	switch {
	case w.Check:
		kind = 3
	case w.Believed() == 0:
		kind = 2
	}
	askLo := p.asked.len() / int64(len(askNumbers))
	for i := range w.Requests {
		p.ask(&w.Requests[i])
	}
	p.writes.add(kind, w.DueAt, askLo, askLo+int64(len(w.Requests)), int64(w.Watch.Kind), w.Watch.Nonce, w.Watch.Since)
}

func (p *packed) consumed(h *nonce.Past) {
	hashes := int64(len(p.blob)) + 1
	p.blob = nonce.AppendHashes(p.blob, h.TxHash, h.Replaced)
	hashesLen := int64(len(p.blob)) + 1 - hashes
	_, reasonLen := p.text(h.Reason)
	p.past.add(h.Nonce, h.Attempt, int64(h.Holder), hashes, hashesLen, reasonLen) // #nosec G115 -- the holder is kept bit by bit
	switch {
	case p.form&formAll == 0:
	case h.Again:
		p.past.add(1)
	default:
		p.past.add(0)
	}
}

func (p *packed) ask(q *nonce.Remembered) {
	id, idLen := p.text(q.ID)
	hash, hashLen := p.bytes(q.Hash[:])
	nonces, noncesLen := p.text(q.PackNonces())
	p.asked.add(id, idLen, hash, hashLen, nonces, noncesLen)
}
