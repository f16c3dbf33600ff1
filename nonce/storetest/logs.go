package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// RunLogs holds a nonce.LogStore to the sentences of its interface, on an empty database as Run.
func RunLogs(t *testing.T, open func(t *testing.T) Database) {
	goal := rule{"a goal is changed by who knew the one before", func(f *fixture) {
		log := f.log()
		was, err := log.Engine(f.Context())
		f.ok(err)
		got, err := log.SetEngine(f.Context(), was.Change, nonce.EngineGoal{Performance: true, Rehearse: time.Second, Reason: "why"})
		f.ok(err)
		if got.Change != was.Change+1 || !got.Performance || got.Rehearse != time.Second || got.Reason != "why" || got.At.IsZero() {
			f.Errorf("got %+v", got)
		}
		again, err := log.SetEngine(f.Context(), was.Change, nonce.EngineGoal{Degraded: true})
		if f.ok(err); again != got {
			f.Errorf("got %+v, want %+v", again, got)
		}
	}}
	run(t, open, append(scripted(t, "logs.txt"), goal))
}

func (f *fixture) log() nonce.LogStore {
	f.Helper()
	log, ok := f.Store.(nonce.LogStore)
	if !ok {
		f.Fatal("it is no LogStore")
	}
	return log
}

// grant is that of the tests.
var grant = nonce.Grant{For: time.Minute, LongestHold: 10 * time.Minute}

// changeLog changes what the store has of logs.
func (p *play) changeLog(verb string, words []string) string {
	p.Helper()
	if verb == "ship" {
		return p.ship(words)
	}
	ctx, log, h := p.Context(), p.log(), p.holder(words[0])
	switch words = words[1:]; verb {
	case "on": // SHARD SERVER
		done, err := log.TurnOn(ctx, h, p.term(append(words[:1:1], words[2:]...)), words[1], grant)
		p.ok(err)
		if term := p.terms[p.int(words[0])]; done {
			term.Performance = true
			p.terms[term.Shard] = term
		}
		return fmt.Sprint(done)
	case "lose":
		done, err := log.Declare(ctx, h, p.term(words), time.Second)
		p.ok(err)
		o, err := p.Owners(ctx)
		p.ok(err)
		s := o.Shards[p.int(words[0])]
		if want := s.GrantUntil + (grant.LongestHold + time.Second).Milliseconds(); done && s.DoubtUntil != want {
			p.Errorf("got %+v, want doubt until %d", s, want)
		}
		return fmt.Sprint(done)
	case "reserve": // SIGNER=CEILING…, and perhaps token=-1
		name, next, _ := strings.Cut(words[0], "=")
		signer := p.signer(name)
		term := p.term(append([]string{fmt.Sprint(nonce.ShardOf(signer, p.Shards()))}, words[1:]...))
		got, err := log.Reserve(ctx, h, []nonce.Ceiling{{Name: signer, Term: term, Next: int64(p.int(next))}})
		p.ok(err)
		return joined(got)
	case "rehearsed": // in the third change of goal
		var terms []lease.ShardTerm
		for _, shard := range words {
			terms = append(terms, p.term([]string{shard}))
		}
		p.ok(log.Rehearsed(ctx, h, terms, 3))
	default:
		p.Fatalf("what is %q?", verb)
	}
	return ""
}

// ship ships what a node has: SHARD, and perhaps head=7, off and token=-1, and behind a colon the writes.
func (p *play) ship(words []string) string {
	p.Helper()
	shards, writes, _ := strings.Cut(strings.Join(words[1:], " "), ":")
	s := nonce.Shipment{Generation: p.Generation()}
	for one := range strings.SplitSeq(shards, ";") {
		options := strings.Fields(one)
		of := nonce.ShippedShard{Term: p.term(options), Off: slices.Contains(options, "off")}
		for _, option := range options {
			switch key, value, _ := strings.Cut(option, "="); key {
			case "head":
				of.Head = int64(p.int(value))
			case "for":
				s.Grant = nonce.Grant{For: p.duration(value)}
			}
		}
		s.Shards = append(s.Shards, of)
	}
	if writes != "" {
		for one := range strings.SplitSeq(writes, ";") {
			s.Writes = append(s.Writes, p.write(strings.Fields(one)))
		}
	}
	got, err := p.log().Ship(p.Context(), p.holder(words[0]), s)
	p.ok(err)
	if len(got.Results) != len(s.Writes) || len(got.Whole) != len(s.Shards) || len(got.Granted) != len(s.Shards) {
		p.Fatalf("got %+v of %+v", got, s)
	}
	return strings.TrimPrefix(fmt.Sprintf("%s, whole %v, granted %v", joined(got.Results), got.Whole, got.Granted), ", ")
}
