package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
)

// TestStories plays testdata/*.txt, each story in fake time between this node and scripted ones.
// testdata/README.md describes the steps.
func TestStories(t *testing.T) {
	expect.Scripts(t, "testdata/*.txt", func(t *testing.T, script *expect.Script) {
		synctest.Test(t, func(t *testing.T) {
			hosts := script.Option("hosts")
			if hosts == nil {
				hosts = []string{"a"}
			}
			s := &story{world: newWorld(t, Config{Queue: 3}, hosts...), links: map[string]*far{}, ops: map[string]*asked{}}
			s.named = map[string]string{}
			script.Play(s.step)
		})
	})
}

// story is one that is being played.
type story struct {
	*world
	links  map[string]*far // the link to each node that was made last
	asked  []question      // requests, by number from 1
	ops    map[string]*asked
	events int // of the sink, that were shown
	losses int
	await  chan struct{}
	cancel context.CancelFunc
}

type question struct {
	at *far
	received
}

// step takes one, and returns what has happened then.
func (s *story) step(command string, args []string) (shown []string) {
	do := steps[command]
	if do == nil || len(args) < do.args {
		s.t.Fatalf("no step %s %q", command, args)
	}
	if said := do.take(s, args); said != "" {
		shown = append(shown, said)
	}
	synctest.Wait()
	return append(shown, s.happened()...)
}

// happened shows what is new: links, events, requests, ops that are back.
func (s *story) happened() (shown []string) {
	say := func(format string, args ...any) { shown = append(shown, fmt.Sprintf(format, args...)) }
	for _, host := range s.hosts {
		for len(s.fars[host]) > 0 {
			s.links[host] = <-s.fars[host]
			say("%s is linked", host)
		}
	}
	synctest.Wait()
	s.sink.mu.Lock()
	for ; s.events < len(s.sink.events); s.events++ {
		say("event %s", s.sink.events[s.events])
	}
	for ; s.losses < s.sink.lost; s.losses++ {
		say("events may be lost")
	}
	s.sink.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(s.links)) {
		for p := s.links[host]; len(p.interests) > 0; {
			i := <-p.interests
			what := fmt.Sprint(i.Signers)
			switch {
			case i.All:
				what = "all"
			case i.empty():
				what = "nothing"
			}
			say("%s is asked for %s, #%d", host, what, i.seq)
		}
		for p := s.links[host]; len(p.requests) > 0; {
			r, ok := <-p.requests
			if !ok {
				break
			}
			s.asked = append(s.asked, question{p, r})
			say("%s gets #%d %v of %s", host, len(s.asked), r.Kind, r.Signer)
		}
	}
	for len(s.back) > 0 {
		o := <-s.back
		why := ""
		if o.res.Err != nil {
			why = ": " + o.res.Err.Error()
		} else if len(o.res.Nonces) > 0 {
			why = fmt.Sprint(": nonces ", o.res.Nonces)
		}
		for name, op := range s.ops {
			if op == o {
				say("%s is back, %s%s", name, verdicts[o.verdict], why)
			}
		}
	}
	if s.await != nil {
		select {
		case <-s.await:
			s.await = nil
			say("the wait is over")
		default:
		}
	}
	return shown
}

var verdicts = map[nonce.Verdict]string{
	nonce.Answered: "answered", nonce.Bounced: "not done", nonce.Doubtful: "in doubt", nonce.Expired: "too late",
}

type stepDo struct {
	args int // at least
	take func(s *story, args []string) (said string)
}

// quiet is a step that says nothing itself.
func quiet(args int, take func(s *story, args []string)) *stepDo {
	return &stepDo{args, func(s *story, a []string) string { take(s, a); return "" }}
}

// number is a number of a step.
func (s *story) number(text string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "#"))
	expect.Must(s.t, err)
	return n
}

// refusals are errors by the words of a step.
var refusals = map[string]error{
	"fenced": nonce.ErrFenced, "draining": nonce.ErrDraining, "not-found": nonce.ErrNotFound, "busy": nonce.ErrBusy,
	"not-owner": &nonce.NotOwnerError{Node: "b", URL: "ws://b"},
	"away":      &nonce.UnavailableError{Outcome: nonce.NotSent, Err: errors.New("dial")},
	"unknown":   &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errors.New("reset")},
	"told":      &nonce.UnavailableError{Outcome: nonce.NotSent, Err: nonce.ErrChainUnknown},
}

var steps = map[string]*stepDo{
	"nodes": quiet(0, (*story).register),
	"sleep": quiet(1, func(s *story, a []string) {
		d, err := time.ParseDuration(a[0])
		expect.Must(s.t, err)
		time.Sleep(d)
	}),
	"forward": {2, (*story).send},
	"grant": quiet(2, func(s *story, a []string) {
		r := s.asked[s.number(a[0])-1]
		r.at.grant(r.received, int64(s.number(a[1])))
	}),
	"refuse": quiet(2, func(s *story, a []string) {
		r := s.asked[s.number(a[0])-1]
		r.at.answer(r.received, nonce.Result{Err: refusals[a[1]]})
	}),
	"have": quiet(2, func(s *story, a []string) { s.links[a[0]].have(uint64(s.number(a[1]))) }),
	"tell": quiet(3, func(s *story, a []string) {
		missed := 0
		if len(a) > 3 {
			missed = s.number(a[3])
		}
		s.links[a[0]].event(a[1], int64(s.number(a[2])), int64(missed))
	}),
	"cut": quiet(1, func(s *story, a []string) { s.links[a[0]].cut() }),
	"close": quiet(2, func(s *story, a []string) {
		code := s.number(a[1])
		s.links[a[0]].close(code, cmp.Or(strings.Join(a[2:], " "), closeTexts[code], "as the test says"))
	}),
	"mute":     quiet(1, func(s *story, a []string) { s.links[a[0]].mute.Store(true) }),
	"stop":     quiet(1, func(s *story, a []string) { s.links[a[0]].stopReading() }),
	"hang":     quiet(2, func(s *story, a []string) { s.net.Host(a[0]).Hung.Store(a[1] == "on") }),
	"upgrades": quiet(2, func(s *story, a []string) { s.refuseUpgrades(a[0], s.number(a[1])) }),
	"version":  quiet(1, func(s *story, a []string) { s.version.Store(int32(s.number(a[0]))) }),
	"want": quiet(1, func(s *story, a []string) {
		switch a[0] {
		case "all":
			s.want()
		case "nothing":
			s.wants = events.Interest{}
			s.InterestChanged()
		default:
			s.want(a...)
		}
	}),
	"await": quiet(0, func(s *story, _ []string) {
		ctx, cancel := context.WithCancel(context.Background())
		s.t.Cleanup(cancel)
		done := make(chan struct{})
		s.await, s.cancel = done, cancel
		go func() { s.Await(ctx); close(done) }()
	}),
	"forwarding": quiet(1, func(s *story, a []string) { s.Router.cfg.Forward = a[0] == "on" }),
	"give-up":    quiet(0, func(s *story, _ []string) { s.cancel() }),
	"state": {1, func(s *story, a []string) string {
		state := cmp.Or(s.state(a[0]), "unknown")
		return a[0] + " is " + state + map[bool]string{true: ", and is reached"}[s.Reaches(a[0])]
	}},
	"dials": {0, func(s *story, _ []string) string {
		return strings.TrimSpace(fmt.Sprint(len(s.net.Dials()), " dials: ", s.net.Dials()))
	}},
	"counted": {0, func(s *story, _ []string) string {
		of := s.metrics.forwarded
		return fmt.Sprintf("%d busy and %d answered", of.Of(resultBusy).Load(), of.Of(resultAnswered).Load())
	}},
	"ended": {1, func(s *story, a []string) string {
		select {
		case err := <-s.links[a[0]].ended:
			return a[0] + " sees the end: " + err.Error()
		default:
			return "the link to " + a[0] + " has not ended"
		}
	}},
	"logged": {1, func(s *story, a []string) string { return fmt.Sprint(s.logged(strings.Join(a, " ")), " times") }},
	"end": {0, func(s *story, _ []string) string {
		if err := s.Stop(context.Background()); err != nil {
			return err.Error()
		}
		return ""
	}},
}

// register is what the registry says: NAME, NAME@INCARNATION, with :basic, :left or :silent, and =HOST.
func (s *story) register(nodes []string) {
	list := s.nodes()[:1]
	for _, text := range nodes {
		text, host, _ := strings.Cut(text, "=")
		text, how, _ := strings.Cut(text, ":")
		name, at, again := strings.Cut(text, "@")
		n := node(name, 1)
		if again {
			n.Incarnation = int64(s.number(at))
		}
		if host != "" {
			n.URL = "ws://" + host + "/ws"
			s.net.Add(host, s.net.Host(name))
			s.named[host] = name
		}
		switch how {
		case "basic":
			n.Mode = "basic"
		case "left":
			n.Live, n.Left = false, true
		case "silent":
			n.Live = false
		}
		list = append(list, n)
	}
	s.Nodes(list)
}

// send forwards an op of that name to a node: an allocate of a signer that is called as the op, or
// the op that was sent before under this name.
func (s *story) send(a []string) string {
	op := s.ops[a[0]]
	if op == nil {
		op = s.allocation(a[0])
		s.ops[a[0]] = op
	}
	url := ""
	if len(a) > 2 {
		url = "ws://" + a[2] + "/ws"
	}
	err := s.Forward(a[1], url, &op.Request, 5, op)
	switch {
	case errors.Is(err, nonce.ErrForwardBusy):
		return "busy"
	case errors.Is(err, nonce.ErrPeerAway):
		return "away"
	case errors.Is(err, nonce.ErrOtherVersion):
		return "of another version"
	}
	expect.Check(s.t, err)
	return ""
}
