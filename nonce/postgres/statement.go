package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"noncegate/lease"
	"noncegate/nonce"
)

// shardParts are the pieces that a commit may have. Each combination is prepared once a
// connection.
type shardParts uint16

const (
	partUpdates  shardParts = 1 << iota // of signers that have a row
	partInserts                         // of signers that have none
	partChecks                          // which only compare
	partHistory                         // what was consumed
	partRequests                        // request ids
	partDues                            // signers are listed
	partFree                            // rows that somebody else writes are left out, and not waited for
	partBasic                           // mode basic: whoever owns the shard, and the row gets token 0
	partAgain                           // of some of what was consumed there may be a row, of no higher attempt
	partShips                           // shards are shipped
	partWatch                           // signers are watched, or no more
)

// commitShards is one commit, of any number of signers and shards. Its parts:
//
//	locked    the rows of the shards. Nobody takes one before the commit has ended
//	mine      of each shard of $3, in its order, the belief that is true; NULL: it is not the writer's
//	updated   the rows of the signers that were updated
//	new       the places of those that are to be inserted, and their names, which are in order
//	inserted  their rows. The place of one is found by its name
//	written   both. All else depends on them
//	checked   what is only compared, and is as it is believed
//	unlisted  the entries of signers without holds that end. The entry of a checked signer stays
//	          while another transaction changes the signer: its new hold may rely on the entry
//	watched, unwatched  the list of signers whose chain is watched; an entry ends as those of unlisted do
//	counted   of a shipment: how many writes of each place of a shard are in the two before
//	shipped   its shards: whole, if all of their writes were counted
//
// Plans are fixed on purpose: every join is a nested loop into a primary key or a unique
// index, driven by the writes, whatever the tables' sizes were when the statement was
// prepared (see runtimeParams). The numbers of a write, of a row of the history and of a
// request id lie one behind the other in $5, $6 and $7 (writeNumbers, pastNumbers,
// askNumbers), and are read where they are used: a row made of them first would be copied
// from part to part. So what goes from part to part is the place o of the write's numbers.
// Whatever has no fixed width is a slice of the byte string $4, because the n-th element of
// an array of texts costs n steps. The conditions o + 0 = o tell the planner, which takes any
// series for a thousand rows, to expect few.
//
// The parameters, in order: the node, its incarnation, and packed's shards, blob, writes, past
// and asked; of a shipment ships, and the grant and the longest hold in milliseconds.
func commitShards(p shardParts) string {
	if text, ok := commitTexts.Load(p); ok {
		return text.(string)
	}
	text := shardText(p)
	commitTexts.Store(p, text)
	return text
}

// commitTexts are the texts that were made, by their parts.
var commitTexts sync.Map

func shardText(p shardParts) string {
	has := func(part shardParts, text string) string {
		if p&part == 0 {
			return ""
		}
		return text
	}
	w := func(name string) string { return number("$5", "o", writeNumbers, name) }
	wx := func(name string) string { return number("$5", "x.o", writeNumbers, name) }
	token, mine, owner := w("belief")+" / 2", " AND (SELECT beliefs FROM mine)["+w("place")+"] = "+w("belief"), " AND s.owner_node = $1 AND s.owner_incarnation = $2"
	if p&partBasic != 0 {
		token, mine, owner = "0", " AND (SELECT beliefs FROM mine)["+w("place")+"] % 2 = 0", ""
	}
	lock := "SHARE"
	if p&partShips != 0 {
		lock = "NO KEY UPDATE"
	}
	name, live := text(w("name_at"), w("name_len")), slice(w("live_at"), w("live_len"))
	all := "FROM generate_series(0, cardinality($5::bigint[]) - 1, " + strconv.Itoa(len(writeNumbers)) + ") o"
	var written []string
	if p&partUpdates != 0 {
		written = append(written, "SELECT * FROM updated")
	}
	if p&partInserts != 0 {
		written = append(written, "SELECT (SELECT places FROM new)[width_bucket(i.signer, (SELECT names FROM new))] AS o, i.signer_id, i.shard_id FROM inserted i")
	}
	insertPast := `
    INSERT INTO signer_history AS h (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
    SELECT x.signer_id, ` + past("nonce") + `, ` + past("attempt") + `, ` + past("holder") + `, ` + slice(past("hashes_at"), past("hashes_len")) + `, ` + text(past("reason_at"), past("reason_len")) + `, (SELECT now FROM c)
    FROM written x, generate_series(` + wx("past_lo") + `, ` + wx("past_hi") + ` - 1) p WHERE p + 0 = p`
	var settled, quiet []string // what a list of deadlines may depend on, and of it what nobody else changes
	if p&(partUpdates|partInserts) != 0 {
		settled = append(settled, "SELECT * FROM written")
		quiet = append(quiet, "SELECT o, signer_id FROM written")
	}
	if p&partChecks != 0 {
		settled = append(settled, "SELECT * FROM checked")
		quiet = append(quiet, "SELECT k.o, k.signer_id FROM checked k, LATERAL (SELECT 1 FROM signer f WHERE f.signer_id = k.signer_id AND f.version = "+number("$5", "k.o", writeNumbers, "version")+" FOR SHARE SKIP LOCKED) free WHERE "+number("$5", "k.o", writeNumbers, "due_at")+" < 0 OR "+number("$5", "k.o", writeNumbers, "watch")+" < 0")
	}
	counts, counted := "", "0"
	if len(settled) > 0 {
		counts = `,
counted AS MATERIALIZED (SELECT ` + wx("place") + ` AS place, count(*) AS writes FROM (` + strings.Join(settled, " UNION ALL ") + `) x GROUP BY 1)`
		counted = "coalesce((SELECT t.writes FROM counted t WHERE t.place = a.place), 0)"
	}
	return `
WITH c AS MATERIALIZED (SELECT store_millis() AS now, $1::text AS node, $2::bigint AS incarnation, length($4::bytea) + cardinality($5::bigint[]) + cardinality($6::bigint[]) + cardinality($7::bigint[]) AS size),
locked AS MATERIALIZED (
    SELECT s.shard_id, s.fencing_token * 2 + s.performance::int AS belief FROM shard s WHERE s.shard_id = ANY ($3::int[])` + owner + ` ORDER BY s.shard_id FOR ` + lock + `),
mine AS MATERIALIZED (
    SELECT ARRAY (SELECT (SELECT l.belief FROM locked l WHERE l.shard_id = a.id)
        FROM unnest($3::int[]) WITH ORDINALITY a(id, place) ORDER BY place) AS beliefs)` +
		has(partUpdates, `,
updated AS (
    UPDATE signer s SET version = s.version + `+w("rise")+`, fencing_token = `+token+`, next_nonce = `+w("next")+`, floor = `+w("floor")+`, live = `+live+`, updated_at = (SELECT now FROM c), ceiling = greatest(s.ceiling, `+w("ceiling")+`), epoch = greatest(s.epoch, `+w("epoch")+`)
    `+all+has(partFree, ", LATERAL (SELECT 1 FROM signer f WHERE f.signer = "+name+" FOR NO KEY UPDATE SKIP LOCKED) free")+`
    WHERE o + 0 = o AND `+w("kind")+` = 1 AND s.signer = `+name+` AND s.version = `+w("version")+` AND `+w("not_before")+` <= (SELECT now FROM c)`+mine+
			has(partRequests, " AND ("+w("ask_lo")+" = "+w("ask_hi")+" OR NOT EXISTS ("+knownText("s.signer_id", w("ask_lo"), w("ask_hi"))+"))")+`
      AND (`+w("next")+` >= s.next_nonce AND `+w("floor")+` >= s.floor OR broken('the cursor or the floor of a signer falls'))
    RETURNING o, s.signer_id, s.shard_id)`) +
		has(partInserts, `,
new AS MATERIALIZED (
    SELECT array_agg(o) AS places, array_agg(`+name+`) AS names `+all+`
    WHERE o + 0 = o AND `+w("kind")+` = 2 AND `+w("not_before")+` <= (SELECT now FROM c)`+mine+` AND NOT EXISTS (SELECT 1 FROM signer s WHERE s.signer = `+name+` AND s.version > 0)),
inserted AS (
    INSERT INTO signer AS s (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at, ceiling, epoch)
    SELECT `+name+`, ($3::int[])[`+w("place")+`], `+w("rise")+`, `+token+`, `+w("next")+`, `+w("floor")+`, `+live+`, (SELECT now FROM c), `+w("ceiling")+`, `+w("epoch")+` FROM unnest((SELECT places FROM new)) o
    ON CONFLICT (signer) DO UPDATE SET version = excluded.version, fencing_token = excluded.fencing_token, next_nonce = excluded.next_nonce, floor = excluded.floor,
        live = excluded.live, updated_at = excluded.updated_at, ceiling = greatest(s.ceiling, excluded.ceiling), epoch = greatest(s.epoch, excluded.epoch)
    WHERE s.version = 0
    RETURNING s.signer, s.signer_id, s.shard_id)`) +
		has(partUpdates|partInserts, `,
written AS MATERIALIZED (`+strings.Join(written, " UNION ALL ")+`)`) +
		has(partHistory, `,
history AS (`+insertPast+has(partAgain, " AND "+past("again")+" = 0")+`)`) +
		has(partAgain, `,
history_again AS (`+insertPast+" AND "+past("again")+` = 1
    ON CONFLICT (signer_id, nonce) DO UPDATE SET attempt = excluded.attempt, holder = excluded.holder, tx_hashes = excluded.tx_hashes,
        reason = excluded.reason, at = excluded.at
    WHERE h.attempt <= excluded.attempt OR broken('a nonce was consumed with a higher attempt'))`) +
		has(partRequests, `,
requests AS (
    INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at)
    SELECT x.signer_id, `+text(ask("id_at"), ask("id_len"))+`, `+slice(ask("hash_at"), ask("hash_len"))+`, `+text(ask("nonces_at"), ask("nonces_len"))+`, (SELECT now FROM c)
    FROM written x, generate_series(`+wx("ask_lo")+`, `+wx("ask_hi")+` - 1) q WHERE q + 0 = q)`) +
		has(partChecks, `,
checked AS MATERIALIZED (
    SELECT o, s.signer_id, s.shard_id `+all+` LEFT JOIN signer s ON s.signer = `+name+`
    WHERE o + 0 = o AND `+w("kind")+` = 3 AND coalesce(s.version, 0) = `+w("version")+mine+`)`) +
		has(partDues, `,
unlisted AS (
    DELETE FROM signer_due d USING (`+strings.Join(quiet, " UNION ALL ")+`) x
    WHERE d.signer_id = x.signer_id AND `+wx("due_at")+` < 0 AND d.due_at <= (SELECT now FROM c)),
due AS (
    INSERT INTO signer_due AS d (signer_id, shard_id, due_at)
    SELECT x.signer_id, x.shard_id, `+wx("due_at")+` FROM (`+strings.Join(settled, " UNION ALL ")+`) x WHERE `+wx("due_at")+` > 0 AND x.signer_id IS NOT NULL
    ON CONFLICT (signer_id) DO UPDATE SET due_at = excluded.due_at
    WHERE excluded.due_at < d.due_at OR d.due_at <= (SELECT now FROM c))`) +
		has(partWatch, `,
unwatched AS (
    DELETE FROM signer_watch d USING (`+strings.Join(quiet, " UNION ALL ")+`) x WHERE d.signer_id = x.signer_id AND `+wx("watch")+` < 0),
watched AS (
    INSERT INTO signer_watch AS d (signer_id, shard_id, kind, nonce, since)
    SELECT x.signer_id, x.shard_id, `+wx("watch")+`, `+wx("watch_nonce")+`, `+wx("watch_since")+` FROM (`+strings.Join(settled, " UNION ALL ")+`) x
    WHERE `+wx("watch")+` > 0 AND x.signer_id IS NOT NULL AND (`+wx("watch")+` > 1 OR NOT EXISTS (SELECT 1 FROM signer_watch e WHERE e.signer_id = x.signer_id))
    ON CONFLICT (signer_id) DO UPDATE SET kind = excluded.kind, nonce = excluded.nonce, since = excluded.since
    WHERE excluded.kind > 1 AND (d.kind, d.nonce, d.since) IS DISTINCT FROM (excluded.kind, excluded.nonce, excluded.since))`) +
		has(partShips, counts+`,
shipped AS (
    UPDATE shard s SET log_shipped = CASE WHEN w.whole THEN greatest(s.log_shipped, w.head) ELSE s.log_shipped END,
        performance = NOT (w.whole AND w.off = 1), grant_until = greatest(s.grant_until, (SELECT now FROM c) + $9::bigint), longest_hold = greatest(s.longest_hold, $10::bigint)
    FROM (SELECT a.id, `+ship("head")+` AS head, `+ship("off")+` AS off, `+ship("writes")+` = `+counted+` AS whole
        FROM unnest($3::int[]) WITH ORDINALITY a(id, place) WHERE (SELECT beliefs FROM mine)[a.place] = `+ship("belief")+` OFFSET 0) w
    WHERE s.shard_id = w.id
    RETURNING s.shard_id, w.whole)`) + `
SELECT c.now, mine.beliefs, ` +
		cmp.Or(has(partUpdates|partInserts, "(SELECT array_agg("+wx("ord")+") FROM written x)"), "NULL::bigint[]") + `, ` +
		cmp.Or(has(partChecks, "(SELECT array_agg("+wx("ord")+") FROM checked x)"), "NULL::bigint[]") +
		has(partShips, ", (SELECT array_agg(shard_id) FROM shipped), (SELECT array_agg(shard_id) FROM shipped WHERE whole)") + `
FROM c CROSS JOIN mine`
}

// number is a number of an array by its name; at is where its record begins.
func number(array, at string, names []string, name string) string {
	return fmt.Sprintf("(%s::bigint[])[%s+%d]", array, at, slices.Index(names, name)+1)
}

// past and ask are a number of a row of the history, and of a request id.
func past(name string) string {
	return number("$6", "p*"+strconv.Itoa(len(pastNumbers)), pastNumbers, name)
}

func ask(name string) string {
	return number("$7", "q*"+strconv.Itoa(len(askNumbers)), askNumbers, name)
}

func ship(name string) string {
	return number("$8", "(a.place-1)*"+strconv.Itoa(len(shipNumbers)), shipNumbers, name)
}

// slice and text are a part of the byte string.
func slice(at, length string) string {
	return "substring($4::bytea FROM " + at + "::int FOR " + length + "::int)"
}

// text has the collation of the keys: convert_from takes that of its second argument.
func text(at, length string) string {
	return "convert_from(" + slice(at, length) + ", 'UTF8') COLLATE \"C\""
}

// knownText finds a request id of a write that the signer has. Each id is looked up by the
// whole of the key, for which the planner needs the LIMIT.
func knownText(signer, lo, hi string) string {
	return `
        SELECT 1 FROM (SELECT generate_series(` + lo + `, ` + hi + ` - 1) AS q) q, LATERAL (
            SELECT 1 FROM signer_request known WHERE known.signer_id = ` + signer + ` AND known.request_id = ` + text(ask("id_at"), ask("id_len")) + `
            LIMIT 1) known`
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

// packed are the parameters of commitShards, in its order.
type packed struct {
	shards              []int
	blob                []byte
	writes, past, asked []int64
	ships               []int64
	places              []int // of the shard of each write in shards, from 1; in order of the writes
	parts               shardParts
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
		p.parts |= partChecks
	case believed > 0:
		kind = 1
		p.parts |= partUpdates
	default:
		kind = 2
		p.parts |= partInserts
	}
	askLo := len(p.asked) / len(askNumbers)
	for i := range w.Requests {
		p.ask(&w.Requests[i])
	}
	pastLo := len(p.past) / len(pastNumbers)
	for i := range w.History {
		p.consumed(&w.History[i])
	}
	if w.DueAt != 0 {
		p.parts |= partDues
	}
	if w.Watch.Kind != nonce.WatchAsIs {
		p.parts |= partWatch
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
	p.parts |= partHistory
	if h.Again {
		p.parts |= partAgain
		again = 1
	}
	hashes, hashesLen := p.bytes(nonce.JoinHashes(h.TxHash, h.Replaced))
	reason, reasonLen := p.bytes([]byte(h.Reason))
	p.past = append(p.past, h.Nonce, h.Attempt, int64(h.Holder), hashes, hashesLen, reason, reasonLen, again) // #nosec G115 -- the holder is kept bit by bit
}

func (p *packed) ask(q *nonce.Remembered) {
	p.parts |= partRequests
	id, idLen := p.bytes([]byte(q.ID))
	hash, hashLen := p.bytes(q.Hash[:])
	nonces, noncesLen := p.bytes([]byte(q.PackNonces()))
	p.asked = append(p.asked, id, idLen, hash, hashLen, nonces, noncesLen)
}
