package storetest

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
)

// scripts are the rules that a conversation with the store shows. testdata/README.md has their words.
//
//go:embed testdata/*.txt
var scripts embed.FS

// scripted are the rules of a file.
func scripted(t *testing.T, file string) (rules []rule) {
	text, err := scripts.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range noncetest.Scripts(string(text)) {
		rules = append(rules, rule{script.Name, func(f *fixture) { f.run(script.Script) }})
	}
	return rules
}

// play is a script under way.
type play struct {
	*fixture
	holders map[string]lease.Holder // by node, the latest start of each
	terms   map[int]lease.ShardTerm // by shard, as somebody took it last
	names   map[string]string       // of signers: how the script calls them
	began   time.Time               // by the store's clock
	seen    string                  // what the last plan of mode basic was told
}

func (f *fixture) run(script string) {
	p := &play{
		fixture: f, holders: map[string]lease.Holder{"alice": f.alice, "bob": f.bob},
		terms: make(map[int]lease.ShardTerm), names: make(map[string]string), began: f.now(),
	}
	lines, want := noncetest.Lines(script)
	for i, line := range lines {
		if got := p.do(line); got != want[i] {
			f.Errorf("%s: got %q, want %q", line, got, want[i])
		}
	}
}

// do does what a line says, and returns what is shown of it.
func (p *play) do(line string) string {
	p.Helper()
	who, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	if who == "elsewhere" { // by another handle
		other := *p.fixture
		other.Store = p.db.Open(p.T)
		return (&play{&other, p.holders, p.terms, p.names, p.began, ""}).do(rest)
	}
	if name, writes := strings.CutSuffix(who, ":"); writes {
		return p.commit(name, rest)
	}
	if shown, known := p.look(who, words); known {
		return shown
	}
	return p.change(who, words)
}

// change does what changes the store.
func (p *play) change(verb string, words []string) string {
	p.Helper()
	ctx := p.Context()
	switch verb {
	case "advance":
		p.db.Advance(p.duration(words[0]))
	case "register", "start": // who starts has a lease
		presence := lease.Presence{Node: words[0], URL: "ws://" + words[0], Mode: "worker-queue"}
		if len(words) > 1 {
			presence.URL, presence.Mode = words[1], words[2]
		}
		h, err := p.Register(ctx, presence)
		p.ok(err)
		p.holders[words[0]] = h
		if verb == "start" {
			p.renew(h, ttl)
		}
	case "renew":
		return p.renewed(p.holder(words[0]), append(words, ttl.String())[1])
	case "leave":
		p.ok(p.Leave(ctx, p.holder(words[0])))
	case "take":
		for _, word := range words[1:] {
			shard := p.int(word)
			p.terms[shard] = p.fixture.take(p.holder(words[0]), shard)
		}
	case "release":
		given, err := p.Release(ctx, p.holder(words[0]), []lease.ShardTerm{p.term(words[1:])})
		p.ok(err)
		return fmt.Sprint(given)
	case "pin":
		p.ok(p.Pin(ctx, p.int(words[0]), strings.Join(words[1:], "")))
	case "prune":
		n, err := p.Prune(ctx, p.now().Add(-p.duration(words[0])), p.int(words[1]))
		p.ok(err)
		return fmt.Sprint(n)
	case "forget": // request ids
		n, err := p.PruneRequests(ctx, p.duration(words[0]), p.int(words[1]))
		p.ok(err)
		return fmt.Sprint(n)
	case "damage":
		p.db.Damage(p.T, p.signer(words[0]))
	case "keep", "settle", "delay", "drop", "used":
		return p.changeSent(verb, p.signer(words[0]), words[1:])
	default:
		return p.changeLog(verb, words)
	}
	return ""
}

// look shows what the store shows, if that is what is asked.
func (p *play) look(verb string, words []string) (shown string, known bool) {
	p.Helper()
	ctx := p.Context()
	var all []string
	switch verb {
	case "acquire":
		var wanted []int
		for _, word := range words[1:] {
			wanted = append(wanted, p.int(word))
		}
		for _, got := range p.acquire(p.holder(words[0]), wanted...) {
			all = append(all, p.shardText(got)+flagged(" taken", got.Taken))
		}
	case "shards":
		o, err := p.Owners(ctx)
		p.ok(err)
		if len(o.Shards) != p.Shards() {
			p.Errorf("%d of %d shards", len(o.Shards), p.Shards())
		}
		for _, s := range o.Shards {
			all = append(all, p.shardText(s))
		}
	case "saw":
		return p.seen, true
	case "serving":
		o, err := p.Owners(ctx)
		p.ok(err)
		for _, n := range o.Nodes {
			if o.Now.Before(n.SeenAt) {
				p.Errorf("at %v, %+v was seen", o.Now, n)
			}
		}
		return fmt.Sprintf("%q", o.Serving()), true
	case "nodes":
		for _, n := range p.nodes() {
			all = append(all, p.nodeText(n))
		}
	case "read":
		for _, word := range words {
			all = append(all, p.signerText(p.read(p.signer(word))))
		}
	case "load":
		return p.loadText(words), true
	case "list":
		return p.listed(p.listQuery(words)), true
	case "ids": // of requests
		page, err := p.List(ctx, p.listQuery(words))
		p.ok(err)
		for _, r := range page.Rows {
			all = append(all, fmt.Sprintf("%d %s", r.Nonce, r.RequestID))
		}
		return strings.TrimSpace(strings.Join(all, ", ")), true
	case "due":
		return p.aliases(p.due(p.int(words[0]), p.ints(words[1:])...)), true
	case "watched":
		return p.aliases(p.watched(p.int(words[0]), p.ints(words[1:])...)), true
	case "find":
		p.finds(filters[words[0]], words[1:]...)
	case "figures":
		for _, s := range p.signers(nonce.SignersQuery{Limit: 9}) {
			all = append(all, p.figuresText(s))
		}
	case "totals":
		t, err := p.Totals(ctx)
		p.ok(err)
		return fmt.Sprintf("held %d unknown %d released %d repeated %d unreadable %d overdue %v",
			t.Held, t.Unknown, t.Released, t.Repeated, t.Unreadable, t.OldestOverdue.Round(time.Minute)), true
	case "sent", "sentdue", "senttotals":
		return p.sentText(verb, words), true
	default:
		return "", false
	}
	return strings.Join(all, "; "), true
}

// holder is the latest start of a node, or NAME.N, the N-th one.
func (p *play) holder(text string) lease.Holder {
	p.Helper()
	if h, known := p.holders[text]; known {
		return h
	}
	name, start, _ := strings.Cut(text, ".")
	return lease.Holder{Node: name, Incarnation: int64(p.int(start))}
}

func holderText(h lease.Holder) string {
	if h == (lease.Holder{}) {
		return "nobody"
	}
	return fmt.Sprintf("%s.%d", h.Node, h.Incarnation)
}

// signer is the name of @0, or @0b, which is another one of that shard, and of any other word itself.
func (p *play) signer(word string) string {
	p.Helper()
	if word[0] != '@' {
		return word
	}
	which := 0
	if len(word) > 2 {
		which = int(word[2] - 'a')
	}
	name := p.named(p.int(word[1:2]), which)
	p.names[name] = word
	return name
}

// aliases puts the script's words in the place of names.
func (p *play) aliases(lines []string) string {
	for i, line := range lines {
		name, rest, more := strings.Cut(line, " ")
		if alias := p.names[name]; alias != "" {
			name = alias
		}
		lines[i] = strings.TrimSpace(name + flagged(" "+rest, more))
	}
	return strings.Join(lines, ", ")
}

func (p *play) int(text string) int {
	p.Helper()
	n, err := strconv.Atoi(text)
	p.ok(err)
	return n
}

func (p *play) ints(words []string) (all []int) {
	p.Helper()
	for _, word := range words {
		all = append(all, p.int(word))
	}
	return all
}

func (p *play) duration(text string) time.Duration {
	p.Helper()
	d, err := time.ParseDuration(text)
	p.ok(err)
	return d
}

// at is a time by the store's clock, from now on, in Unix milliseconds.
func (p *play) at(text string) int64 {
	p.Helper()
	return p.now().Add(p.duration(text)).UnixMilli()
}

func flagged(text string, is bool) string {
	if is {
		return text
	}
	return ""
}
