package postgres

import (
	_ "embed" // commit.sql
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"

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
	write := func(at string) map[string]string { return numbers("$5", at, writeNumbers) }
	w, p, q := write("o"), numbers("$6", fmt.Sprint("p*", len(pastNumbers)), pastNumbers), numbers("$7", fmt.Sprint("q*", len(askNumbers)), askNumbers)
	return map[string]any{
		"IDs": f&formIDs != 0, "All": f&formAll != 0, "Ships": f&formShips != 0, "SkipLocked": f&formSkipLocked != 0, "Basic": f&formBasic != 0,
		"Step": len(writeNumbers), "W": w, "X": write("x.o"), "K": write("k.o"), "Name": text(w, "name"), "Live": slice(w, "live"),
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

// What packed puts into its arrays, one record behind the other. kind is 1 for a signer that
// has a row, 2 for one that has none, and 3 for a write that only compares.
var (
	writeNumbers = []string{
		"ord", "kind", "place", "belief", "version", "rise", "next", "floor", "ceiling", "epoch", "not_before", "due_at",
		"past_lo", "past_hi", "ask_lo", "ask_hi", "name_at", "name_len", "live_at", "live_len", "watch", "watch_nonce", "watch_since",
	}
	pastNumbers = []string{"nonce", "attempt", "holder", "hashes_at", "hashes_len", "reason_at", "reason_len", "again"}
	askNumbers  = []string{"id_at", "id_len", "hash_at", "hash_len", "nonces_at", "nonces_len"}
	shipNumbers = []string{"belief", "head", "off", "writes"} // of each of the shards
)

// packed are the parameters of a commit, in its order.
type packed struct {
	shards              []int
	blob                []byte
	writes, past, asked []int64
	ships               []int64
	places              []int // of the shard of each write in shards, from 1; in order of the writes
	form                form
}

// bytes puts bytes into the blob, and returns where they begin, from 1, and how many they are.
func (p *packed) bytes(b []byte) (from, length int64) {
	from = int64(len(p.blob)) + 1
	p.blob = append(p.blob, b...)
	return from, int64(len(b))
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
func (p *packed) add(ord, shards int, w *nonce.Write) {
	shard := w.Term.Shard
	if shard != nonce.ShardOf(w.Name, shards) {
		shard = -1 // nobody owns it
	}
	place := p.place(shard)
	p.places[ord] = place
	believed, kind := w.Believed(), int64(3)
	switch {
	case w.Check:
		p.form |= formIDs
	case believed > 0:
		kind = 1
	default:
		kind = 2
		p.form |= formIDs | formAll
	}
	askLo := len(p.asked) / len(askNumbers)
	for i := range w.Requests {
		p.ask(&w.Requests[i])
	}
	pastLo := len(p.past) / len(pastNumbers)
	for i := range w.History {
		p.consumed(&w.History[i])
	}
	if w.DueAt != 0 || w.Watch.Kind != nonce.WatchAsIs {
		p.form |= formIDs | formAll
	}
	name, nameLen := p.bytes([]byte(w.Name))
	live := int64(len(p.blob)) + 1
	if !w.Check {
		p.blob = nonce.AppendLive(p.blob, w.Signer.Live)
	}
	p.writes = append(p.writes, int64(ord), kind, int64(place), belief(w.Term), believed, 1+w.Rise, w.Signer.Next, w.Signer.Floor, w.Signer.Ceiling, w.Signer.Epoch, w.NotBefore, w.DueAt,
		int64(pastLo), int64(len(p.past)/len(pastNumbers)), int64(askLo), int64(len(p.asked)/len(askNumbers)), name, nameLen, live, int64(len(p.blob))+1-live, int64(w.Watch.Kind), w.Watch.Nonce, w.Watch.Since)
}

func (p *packed) consumed(h *nonce.Past) {
	var again int64
	if h.Again {
		p.form |= formIDs | formAll
		again = 1
	}
	hashes, hashesLen := p.bytes(nonce.JoinHashes(h.TxHash, h.Replaced))
	reason, reasonLen := p.bytes([]byte(h.Reason))
	p.past = append(p.past, h.Nonce, h.Attempt, int64(h.Holder), hashes, hashesLen, reason, reasonLen, again) // #nosec G115 -- the holder is kept bit by bit
}

func (p *packed) ask(q *nonce.Remembered) {
	p.form |= formIDs
	id, idLen := p.bytes([]byte(q.ID))
	hash, hashLen := p.bytes(q.Hash[:])
	nonces, noncesLen := p.bytes([]byte(q.PackNonces()))
	p.asked = append(p.asked, id, idLen, hash, hashLen, nonces, noncesLen)
}
