package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
)

// term reads SHARD and perhaps token=+1: the term under which the shard was taken last, or another.
func (p *play) term(words []string) lease.ShardTerm {
	p.Helper()
	term := p.terms[p.int(words[0])]
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "token":
			term.Token += int64(p.int(value))
		case "reliable":
			term.Performance = false
		}
	}
	term.Shard = p.int(words[0])
	return term
}

// commit commits writes of a node, or with basic one of mode basic, and shows what became of each.
func (p *play) commit(who, text string) string {
	p.Helper()
	var writes []nonce.Write
	for one := range strings.SplitSeq(text, ";") {
		writes = append(writes, p.write(strings.Fields(one)))
	}
	var got nonce.Committed
	var err error
	if who == "basic" {
		got, err = p.Locked(p.Context(), need(&writes[0]), func(l nonce.Loaded) (nonce.Write, error) {
			p.seen = p.known(l.Signers[0], need(&writes[0]))
			if version := l.Signers[0].Signer.Version; version != writes[0].Believed() {
				p.Errorf("the plan is told version %d of %s", version, writes[0].Name)
			}
			if l.Signers[0].Shard.Performance != p.terms[l.Signers[0].Shard.Shard].Performance {
				p.Errorf("the plan is told %+v", l.Signers[0].Shard)
			}
			return writes[0], nil
		})
	} else {
		got, err = p.Commit(p.Context(), p.holder(who), writes)
	}
	if err != nil {
		return failed(err)
	}
	if len(got.Results) != len(writes) {
		p.Fatalf("%d results of %d writes", len(got.Results), len(writes))
	}
	return joined(got.Results)
}

func joined[T any](all []T) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = fmt.Sprint(one)
	}
	return strings.Join(words, "; ")
}

// failed is an error in words: its outcome and what it is.
func failed(err error) string {
	for word, is := range map[string]error{
		"invariant": nonce.ErrInvariant, "unreadable": nonce.ErrLive, "went back": lease.ErrWentBack, "superseded": lease.ErrSuperseded, "full": nonce.ErrSentFull,
	} {
		if errors.Is(err, is) {
			return nonce.OutcomeOf(err).String() + ": " + word
		}
	}
	return nonce.OutcomeOf(err).String()
}

// write is one more hold of a signer, or what the words say beside that.
func (p *play) write(words []string) nonce.Write {
	p.Helper()
	name := p.signer(words[0])
	shard := nonce.ShardOf(name, p.Shards())
	w := nonce.Write{Name: name, Term: p.terms[shard], Generation: p.Generation(), Signer: p.read(name).Signer}
	s := &w.Signer
	is := func(key string) bool {
		return slices.ContainsFunc(words, func(word string) bool { before, _, _ := strings.Cut(word, "="); return before == key })
	}
	s.Live = slices.Clone(s.Live)
	if w.Check = is("check"); !w.Check {
		s.Version++
		if !is("next") && !is("live") {
			s.Live = append(s.Live, p.hold(s.Next, 1, time.Hour))
			s.Next++
		}
	}
	for _, word := range words[1:] {
		p.option(&w, word)
	}
	return w
}

// option reads one word of a write.
func (p *play) option(w *nonce.Write, word string) {
	p.Helper()
	key, value, _ := strings.Cut(word, "=")
	s := &w.Signer
	number := map[string]*int64{"v": &s.Version, "next": &s.Next, "floor": &s.Floor, "ceiling": &s.Ceiling, "epoch": &s.Epoch, "rise": &w.Rise}[key]
	switch {
	case number != nil:
		*number = int64(p.int(value))
	case key == "check" && value != "":
		s.Version = int64(p.int(value))
	case key == "check":
	case key == "live":
		s.Live = nil
		for _, entry := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' }) {
			s.Live = append(s.Live, p.entry(entry))
		}
	case key == "past":
		w.History = append(w.History, p.past(value))
	case key == "id":
		w.Requests = append(w.Requests, p.request(value))
	case key == "due" && value == "off":
		w.DueAt = nonce.Unlisted
	case key == "due":
		w.DueAt = p.at(value)
	case key == "notbefore":
		w.NotBefore = p.at(value)
	case key == "watch":
		w.Watch = p.watch(value)
	case key == "token":
		w.Term.Token += int64(p.int(value))
	case key == "shard":
		w.Term = p.terms[p.int(value)]
	case key == "gen":
		w.Generation++
	case key == "reliable":
		w.Term.Performance = false
	default:
		p.Fatalf("what is %q?", word)
	}
}

// parts are those of a word that has them between strokes, and what fmt.Sscanf reads in the first.
func (p *play) parts(text, format string, into ...any) []string {
	p.Helper()
	parts := strings.Split(text, "/")
	if _, err := fmt.Sscanf(parts[0], format, into...); err != nil {
		p.Fatalf("%q: %v", text, err)
	}
	return parts[1:]
}

// entry reads 4H2/1h/unknown, a hold for an hour of attempt 2, or 4R2, one that was released.
func (p *play) entry(text string) nonce.Entry {
	p.Helper()
	e := nonce.Entry{Status: nonce.Released, Holder: 7}
	var state rune
	rest := p.parts(text, "%d%c%d", &e.Nonce, &state, &e.Attempt)
	if state == 'H' {
		e = p.hold(e.Nonce, e.Attempt, p.duration(rest[0]))
		rest = rest[1:]
	}
	for _, reason := range rest {
		e.Note = &nonce.Note{Reason: reason}
	}
	return e
}

// past reads 4#2, perhaps with /again, which may have a row, and /tx3.
func (p *play) past(text string) (past nonce.Past) {
	p.Helper()
	past.Holder = 7
	for _, word := range p.parts(text, "%d#%d", &past.Nonce, &past.Attempt) {
		if word == "again" {
			past.Again = true
		} else if _, err := fmt.Sscanf(word, "tx%d", &past.TxHash[31]); err != nil {
			past.Reason = word
		}
	}
	return past
}

// request reads a, an id, or a/1/0#1, the id of a request with that hash that was given 0#1.
func (p *play) request(text string) nonce.Remembered {
	p.Helper()
	var q nonce.Remembered
	for i, word := range p.parts(text, "%s", &q.ID) {
		if i == 0 {
			q.Hash[0] = byte(p.int(word))
			continue
		}
		var n, attempt int64
		p.parts(word, "%d#%d", &n, &attempt)
		q.Nonces, q.Attempts = append(q.Nonces, n), append(q.Attempts, attempt)
	}
	return q
}

// watch reads on, off, clear, or gap:3:77, the nonce and since when.
func (p *play) watch(text string) (w nonce.Watch) {
	p.Helper()
	kind, rest, more := strings.Cut(text, ":")
	w.Kind = map[string]nonce.WatchKind{
		"on": nonce.WatchOn, "off": nonce.WatchOff, "clear": nonce.WatchClear,
		"gap": nonce.WatchGap, "stuck": nonce.WatchStuck, "dropped": nonce.WatchDropped,
	}[kind]
	if more {
		p.parts(rest, "%d:%d", &w.Nonce, &w.Since)
	}
	return w
}

func (p *play) listQuery(words []string) nonce.ListQuery {
	p.Helper()
	q := nonce.ListQuery{Signer: p.signer(words[0]), Limit: 9}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "limit":
			q.Limit = p.int(value)
		case "from":
			q.From = int64(p.int(value))
		case "unknown":
			q.Unknown, q.Status = true, nonce.Held
		default:
			q.Status = map[string]nonce.Status{"held": nonce.Held, "released": nonce.Released, "consumed": nonce.Consumed}[key]
		}
	}
	return q
}

// shardText is a row of a shard.
func (p *play) shardText(s lease.Shard) string {
	text := fmt.Sprintf("%d %s token %d", s.Shard, holderText(s.Owner), s.Token) + flagged(" pinned "+s.Pinned, s.Pinned != "")
	if s.Performance {
		text += fmt.Sprintf(" log at %s shipped %d granted for %v", s.Identity, s.Shipped, time.UnixMilli(s.GrantUntil).Sub(p.now()).Round(time.Minute))
	}
	return text + flagged(fmt.Sprint(" epoch ", s.Epoch), s.Epoch != 0) +
		flagged(fmt.Sprint(" rehearsed ", s.Rehearsed), s.Rehearsed != 0)
}

// nodeText is a node; its times are in minutes since the beginning.
func (p *play) nodeText(n lease.Node) string {
	since := func(at time.Time) string { return fmt.Sprint(int(at.Sub(p.began).Round(time.Minute).Minutes())) }
	lease := "no lease"
	if !n.LeaseUntil.IsZero() {
		lease = "lease until " + since(n.LeaseUntil)
	}
	return fmt.Sprintf("%s at %s in %s, started %s seen %s, %s", holderText(n.Holder), n.URL, n.Mode, since(n.StartedAt), since(n.SeenAt), lease) +
		flagged(" live", n.Live) + flagged(" left", n.Left) + flagged(fmt.Sprint(" shards ", n.Shards), n.Shards > 0)
}

// renewed renews a lease, which must be shown then as it was told.
func (p *play) renewed(h lease.Holder, lasts string) string {
	p.Helper()
	d := p.duration(lasts)
	r, err := p.Renew(p.Context(), h, d)
	if err != nil {
		return failed(err)
	}
	if !r.Until.Equal(r.Now.Add(d)) || !p.shown(h.Node).LeaseUntil.Equal(r.Until) {
		p.Errorf("renewed for %v at %v, the lease ends at %v, and is shown to end at %v", d, r.Now, r.Until, p.shown(h.Node).LeaseUntil)
	}
	shown := []string{fmt.Sprint("beat ", r.Counter)}
	for _, s := range r.Shards {
		shown = append(shown, p.shardText(s))
	}
	return strings.Join(shown, "; ")
}

func (p *play) signerText(l nonce.LoadedSigner) string {
	s := l.Signer
	text := fmt.Sprintf("v%d next %d floor %d", s.Version, s.Next, s.Floor)
	for _, e := range s.Live {
		text += fmt.Sprintf(" %d%.1s%d", e.Nonce, e.Status, e.Attempt)
	}
	text += fmt.Sprintf(" under %d", l.Token) + flagged(" unreadable", errors.Is(l.Err, nonce.ErrLive))
	text += flagged(fmt.Sprint(" ceiling ", s.Ceiling), s.Ceiling != 0) + flagged(fmt.Sprint(" epoch ", s.Epoch), s.Epoch != 0)
	return text + ", shard " + p.shardText(l.Shard)
}

// loadText is the history of nonces and what is known of request ids: SIGNER NONCE… ID….
func (p *play) loadText(words []string) string {
	p.Helper()
	need := nonce.SignerNeed{Signer: p.signer(words[0])}
	for _, word := range words[1:] {
		if word[0] >= '0' && word[0] <= '9' {
			need.History = append(need.History, int64(p.int(word)))
		} else {
			need.Requests = append(need.Requests, word)
		}
	}
	return p.known(p.load(need)[0], need)
}

// need is what a write has, to see whether it is there.
func need(w *nonce.Write) nonce.SignerNeed {
	need := nonce.SignerNeed{Signer: w.Name}
	for _, past := range w.History {
		need.History = append(need.History, past.Nonce)
	}
	for _, q := range w.Requests {
		need.Requests = append(need.Requests, q.ID)
	}
	return need
}

// known is what was read of nonces and request ids.
func (p *play) known(got nonce.LoadedSigner, need nonce.SignerNeed) string {
	p.Helper()
	var shown []string
	for _, n := range need.History {
		past, asked := got.History[n]
		switch {
		case !asked:
			p.Errorf("nothing is said of nonce %d", n)
		case past == nil:
			shown = append(shown, "none")
		default:
			shown = append(shown, noncetest.Row(past.Row())+fmt.Sprint(" of ", uint64(past.Holder)))
		}
	}
	for _, id := range need.Requests {
		q, asked := got.Requests[id]
		switch {
		case !asked:
			p.Errorf("nothing is said of request %s", id)
		case q == nil:
			shown = append(shown, "none")
		default:
			shown = append(shown, fmt.Sprint(id, " with ", q.Hash[0], " has ", q.Nonces, " as ", q.Attempts))
		}
	}
	return strings.Join(shown, "; ")
}

func (p *play) figuresText(s nonce.SignerFigures) string {
	text := fmt.Sprintf("%s v%d next %d floor %d", s.Signer, s.Version, s.Next, s.Floor) + flagged(" of "+s.Owner, s.Owner != "")
	if s.Unreadable {
		return text + " unreadable"
	}
	text += fmt.Sprintf(" held %d unknown %d released %d lowest %d attempts %d", s.Held, s.Unknown, s.Released, s.LowestReleased, s.MaxAttempt)
	text += flagged(fmt.Sprint(" ends in ", s.OldestHold.Sub(p.now()).Round(10*time.Minute)), !s.OldestHold.IsZero())
	return text + flagged(fmt.Sprint(" ", s.Watch.Kind, " ", s.Watch.Nonce, " ", s.Watch.Since), s.Watch.Kind.String() != "")
}

var filters = map[string]nonce.SignerFilter{
	"all": nonce.AllSigners, "gap": nonce.GapSigners, "troubled": nonce.TroubledSigners,
	"unknown": nonce.UnknownSigners, "overdue": nonce.OverdueSigners, "repeat": nonce.RepeatSigners,
}

// changeSent changes what is kept of transactions of a signer: NONCE txN, and more.
func (p *play) changeSent(verb, signer string, words []string) string {
	p.Helper()
	ctx, n := p.Context(), int64(p.int(words[0]))
	var hash nonce.TxHash
	if len(words) > 1 {
		p.parts(words[1], "tx%d", &hash[31])
	}
	t := nonce.Sent{Signer: signer, Nonce: n, Hash: hash, Payment: [16]byte{hash[31]}}
	switch verb {
	case "keep": // for a look after a minute, or RAW AFTER BELOW
		t.Raw = []byte(words[2])
		if words[2] == "half" {
			t.Raw = make([]byte, nonce.MaxSentBytes/2)
		}
		after, below := time.Minute, 0
		if len(words) > 3 {
			after, below = p.duration(words[3]), p.int(words[4])
		}
		was, err := p.KeepSent(ctx, t, int64(below), after)
		if errors.Is(err, nonce.ErrSentFull) {
			return "full"
		}
		p.ok(err)
		return was.String()
	case "settle":
		state := map[string]nonce.SentState{"taken": nonce.SentTaken, "refused": nonce.SentRefused}[words[2]]
		p.ok(p.SettleSent(ctx, signer, n, hash, state, p.duration(words[3])))
	case "delay":
		p.ok(p.DelaySent(ctx, []nonce.Sent{t}, p.duration(words[2])))
	case "drop":
		p.ok(p.DropSent(ctx, signer, n, hash))
	case "used":
		p.ok(p.ForgetSent(ctx, signer, n))
	}
	return ""
}

// sentText is what is kept of transactions: those of a SIGNER FROM a nonce, or a NUMBER of those due of SHARDS.
func (p *play) sentText(verb string, words []string) string {
	p.Helper()
	var all []nonce.Sent
	var err error
	switch verb {
	case "sent":
		all, err = p.SentOf(p.Context(), p.signer(words[0]), int64(p.int(words[1])))
	case "sentdue":
		all, err = p.DueSent(p.Context(), p.ints(words[1:]), p.int(words[0]))
	default:
		rows, size, err := p.SentTotals(p.Context())
		p.ok(err)
		return fmt.Sprintf("%d rows with %d bytes", rows, size)
	}
	p.ok(err)
	var shown []string
	for _, t := range all {
		if t.Payment != [16]byte{t.Hash[31]} {
			p.Errorf("%+v has another payment", t)
		}
		shown = append(shown, strings.TrimSpace(fmt.Sprintf("%s %d tx%d %s %s", p.names[t.Signer], t.Nonce, t.Hash[31], t.State, t.Raw)))
	}
	return strings.Join(shown, ", ")
}
