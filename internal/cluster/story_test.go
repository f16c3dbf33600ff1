package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
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
			s := &story{
				world: newWorld(t, Config{Queue: 3}, hosts...), peers: map[string]*far{}, ops: map[string]*op{}, whole: map[*op]bool{},
			}
			script.Play(s.step)
		})
	})
}

// story is one that is being played.
type story struct {
	*world
	peers  map[string]*far // the link to each host that was made last
	asked  []question      // requests, by number from 1
	ops    map[string]*op
	whole  map[*op]bool // of these all is shown that came of them
	events int          // of the sink, that were shown
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
		for len(s.net.Host(host).Peers) > 0 {
			s.peers[host] = <-s.net.Host(host).Peers
			say("%s is linked", host)
		}
	}
	synctest.Wait()
	s.sink.mu.Lock()
	for ; s.events < len(s.sink.events); s.events++ {
		missed := ""
		if n := s.sink.missed[s.events]; n > 0 {
			missed = fmt.Sprintf(", %d missed", n)
		}
		if body := s.sink.bodies[s.events]; !strings.Contains(body, wire.EventAllocated) {
			missed += " " + body
		}
		say("event %s%s", s.sink.events[s.events], missed)
	}
	for ; s.losses < s.sink.lost; s.losses++ {
		say("events may be lost")
	}
	s.sink.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(s.peers)) {
		for p := s.peers[host]; len(p.Requests) > 0; {
			r, ok := <-p.Requests
			if !ok {
				break
			}
			s.asked = append(s.asked, question{p, r})
			say("%s gets #%d %s", host, len(s.asked), s.known(r.Method+" "+string(r.Params)))
		}
	}
	for len(s.svc.back) > 0 {
		b := <-s.svc.back
		why := ""
		if b.op.Err != nil {
			why = ": " + s.known(b.op.Err.Error())
		}
		if s.whole[b.op] {
			why = ": " + written(reflect.ValueOf(came(b.op)))
		} else if len(b.op.Nonces) > 0 {
			why = fmt.Sprint(": nonces ", b.op.Nonces)
		}
		for name, op := range s.ops {
			if op == b.op {
				say("%s is back, %s%s", name, verdicts[b.verdict], why)
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

// known is a text with the names of hand-outs in place of the request ids they were given.
func (s *story) known(text string) string {
	for name, op := range s.ops {
		if op.RequestID != "" && !s.whole[op] {
			text = strings.ReplaceAll(text, op.RequestID, "fwd-"+name)
		}
	}
	return text
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

var steps = map[string]*stepDo{
	"nodes": quiet(0, (*story).register),
	"sleep": quiet(1, func(s *story, a []string) {
		d, err := time.ParseDuration(a[0])
		expect.Must(s.t, err)
		time.Sleep(d)
	}),
	"forward": {2, (*story).send},
	"op":      {3, (*story).sendOp},
	"answer": quiet(2, func(s *story, a []string) {
		r := s.asked[s.number(a[0])-1]
		r.at.Answer(r.received, json.RawMessage(strings.Join(a[1:], " ")))
	}),
	"grant": quiet(2, func(s *story, a []string) {
		r := s.asked[s.number(a[0])-1]
		grant(r.at, r.received, int64(s.number(a[1])))
	}),
	"refuse": quiet(3, func(s *story, a []string) {
		var data wire.ErrorData
		if len(a) > 3 {
			expect.Must(s.t, json.Unmarshal([]byte(strings.Join(a[3:], " ")), &data))
		}
		r := s.asked[s.number(a[0])-1]
		r.at.Reject(r.received, s.number(a[1]), a[2], data)
	}),
	"tell": quiet(4, func(s *story, a []string) {
		tellOf(s.peers[a[0]], a[1], a[2], int64(s.number(a[3])), strings.Join(a[4:], " "))
	}),
	"say": quiet(3, func(s *story, a []string) {
		event := strings.Join(a[2:], " ")
		s.peers[a[0]].Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":%s}}`, a[1], event)
	}),
	"cut": quiet(1, func(s *story, a []string) { s.peers[a[0]].Cut() }),
	"close": {2, func(s *story, a []string) string {
		if len(a) > 2 {
			s.peers[a[0]].Close(s.number(a[1]), strings.Join(a[2:], " "))
		} else {
			closeWith(s.peers[a[0]], s.number(a[1]))
		}
		return ""
	}},
	"mute":     quiet(1, func(s *story, a []string) { s.peers[a[0]].Mute.Store(true) }),
	"stop":     {1, func(s *story, a []string) string { s.peers[a[0]].StopReading(); return "" }},
	"hang":     quiet(2, func(s *story, a []string) { s.net.Host(a[0]).Hung.Store(a[1] == "on") }),
	"upgrades": quiet(2, func(s *story, a []string) { s.refuseUpgrades(a[0], s.number(a[1])) }),
	"want": quiet(1, func(s *story, a []string) {
		switch a[0] {
		case "all":
			s.want()
		case "nothing":
			s.wantNothing()
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
		state := cmp.Or(string(s.state(a[0])), "unknown")
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
		case err := <-s.peers[a[0]].Ended:
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
		op = allocation(a[0])
		s.ops[a[0]] = op
	}
	url := ""
	if len(a) > 2 {
		url = "ws://" + a[2] + "/ws"
	}
	op.Err = nil
	err := forwardTo(s.Router, s.svc, a[1], url, op)
	switch {
	case errors.Is(err, nonce.ErrForwardBusy):
		return "busy"
	case errors.Is(err, nonce.ErrPeerAway):
		return "away"
	}
	expect.Check(s.t, err)
	return ""
}

// sendOp forwards an op of a kind with fields, of signer s where it is not said.
func (s *story) sendOp(a []string) string {
	op := &op{Request: &nonce.Request{Signer: "s"}, of: new(caller)}
	for op.Kind = nonce.KindAllocate; op.Kind.String() != a[2]; op.Kind++ {
		if op.Kind > nonce.KindRepair {
			s.t.Fatalf("no kind %s", a[2])
		}
	}
	for _, word := range a[3:] {
		name, text, _ := strings.Cut(word, "=")
		var err error
		if name == "TxHash" {
			op.TxHash, err = nonce.ParseTxHash(text)
		} else {
			err = expect.Set(op.Request, name, text)
		}
		expect.Must(s.t, err)
	}
	s.ops[a[0]], s.whole[op] = op, true
	s.forward(a[1], op)
	return ""
}

// came is what came of an op.
func came(op *op) any {
	if op.Err != nil {
		return op.Err
	}
	return struct {
		Nonces, Attempts []int64
		Attempt, Token   int64
		Status           nonce.Status
		Until            time.Time
		Left             time.Duration
		Hashes           nonce.TxHashes
		Replaced         nonce.TxHash
		Floor, Next      int64
		Before           *nonce.Before
		Earlier          []*nonce.Earlier
		Offer            *nonce.Offer
	}{
		op.Nonces, op.Attempts, op.Result.Attempt, op.Token, op.Status, op.HeldUntil, op.HoldLeft,
		op.Hashes, op.Replaced, op.Result.Floor, op.Next, op.Before, op.Earlier, op.Offer,
	}
}

// written is a value without its fields that are zero.
func written(v reflect.Value) string {
	switch of := v.Interface().(type) {
	case time.Time:
		return of.Format(time.RFC3339Nano)
	case nonce.TxHashes:
		all := make([]string, of.Len())
		for i := range all {
			all[i] = of.At(i).String()
		}
		return fmt.Sprint(all)
	case fmt.Stringer:
		return of.String()
	case error:
		if !strings.HasPrefix(v.Type().Elem().PkgPath(), "noncegate") {
			return of.Error()
		}
	}
	var parts []string
	switch v.Kind() {
	case reflect.Pointer:
		return written(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			parts = append(parts, written(v.Index(i)))
		}
		return fmt.Sprint(parts)
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				parts = append(parts, v.Type().Field(i).Name+" "+written(v.Field(i)))
			}
		}
		return v.Type().Name() + "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}
