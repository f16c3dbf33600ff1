package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// TestStories plays testdata/*.txt, each story in fake time between a client and scripted gateways.
// testdata/README.md describes the steps.
func TestStories(t *testing.T) {
	expect.Scripts(t, "testdata/*.txt", func(t *testing.T, script *expect.Script) {
		var cfg Config
		for _, word := range script.Option("with") {
			set(t, &cfg, word)
		}
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{T: t, net: wspeer.New(t, "a", "b"), calls: map[string]*call{}, subs: map[string]*Subscription{}, ids: map[string]string{}}
			cfg.NetDial = s.net.Dial
			var err error
			s.c, err = Dial(t.Context(), "ws://a", cfg)
			expect.Must(t, err)
			t.Cleanup(func() { s.c.Close() })
			s.happened() // the first link
			script.Play(s.step)
		})
	})
}

// set sets the field of a NAME=VALUE.
func set(t *testing.T, cfg *Config, word string) {
	name, value, _ := strings.Cut(word, "=")
	switch f := reflect.ValueOf(cfg).Elem().FieldByName(name); f.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(value)
		expect.Must(t, err)
		f.SetInt(int64(d))
	case int:
		n, err := strconv.Atoi(value)
		expect.Must(t, err)
		f.SetInt(int64(n))
	case bool:
		f.SetBool(true)
	case []string:
		f.Set(reflect.ValueOf(strings.Split(value, ",")))
	default:
		t.Fatalf("no setting %s", word)
	}
}

// scripted is a story that is being played.
type scripted struct {
	*testing.T
	net    *network
	c      *Client
	links  []*linked
	asked  []question
	calls  map[string]*call
	subs   map[string]*Subscription
	closed bool
	ids    map[string]string // the names of request ids that the client made
}

// linked is a connection to a gateway, called as its host, and from the second as HOST/2.
type linked struct {
	name, host string
	*peer
}

type question struct {
	at *linked
	received
}

// call is one under way.
type call struct {
	cancel context.CancelFunc
	ended  chan string
}

func (s *scripted) step(command string, args []string) (shown []string) {
	switch rest := strings.Join(args[min(1, len(args)):], " "); command {
	case "sleep":
		d, err := time.ParseDuration(args[0])
		expect.Must(s, err)
		time.Sleep(d)
	case "call":
		s.call(args[0], args[1], strings.Join(args[2:], " "))
	case "cancel":
		s.calls[args[0]].cancel()
	case "answer":
		r := s.question(args[0])
		r.at.Answer(r.received, json.RawMessage(rest))
	case "held":
		r := s.question(args[0])
		r.at.Answer(r.received, held(int64(s.number(args[1]))))
	case "refuse":
		var data wire.ErrorData
		if len(args) > 2 {
			expect.Must(s, json.Unmarshal([]byte(strings.Join(args[2:], " ")), &data))
		}
		r := s.question(args[0])
		i := slices.IndexFunc(refusals, func(err error) bool { return err.Error() == args[1] })
		r.at.Reject(r.received, int(refusals[max(i, 0)].(code)), args[1], data)
	case "subscribe":
		s.subscribe(args[0], args[1:])
	case "unsubscribe":
		s.subs[args[0]].Close()
	case "event":
		event(s.link(args[0]).peer, args[1], int64(s.number(args[2])), 0)
	case "say":
		s.link(args[0]).Send("%s", rest)
	case "cut":
		s.link(args[0]).Cut()
	case "close":
		closeWith(s.link(args[0]).peer, s.number(args[1]))
	case "silent":
		s.net.AddSilent(args[0])
	case "upgrades":
		s.upgrades(args)
	case "leave":
		s.c.main.Latest().Leave()
	case "end":
		s.closed = true
		expect.Check(s, s.c.Close())
	case "dials":
		shown = append(shown, fmt.Sprint(s.net.Dials()))
	case "ended":
		select {
		case err := <-s.link(args[0]).Ended:
			shown = append(shown, args[0]+" sees the end: "+err.Error())
		default:
			shown = append(shown, "the link to "+args[0]+" has not ended")
		}
	default:
		s.Fatalf("no step %s", command)
	}
	synctest.Wait()
	return append(shown, s.happened()...)
}

func (s *scripted) number(text string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(text, "#"))
	expect.Must(s, err)
	return n
}

func (s *scripted) question(number string) question { return s.asked[s.number(number)-1] }

// link is one by its name, HOST/1 the first, or the last to a host.
func (s *scripted) link(name string) *linked {
	for _, l := range slices.Backward(s.links) {
		if l.host == name || l.name == strings.TrimSuffix(name, "/1") {
			return l
		}
	}
	s.Fatalf("no link %s", name)
	return nil
}

// happened shows what is new: links, requests, calls that ended, events.
func (s *scripted) happened() (shown []string) {
	synctest.Wait()
	for _, host := range []string{"a", "b"} {
		for len(s.net.Host(host).Peers) > 0 {
			l := &linked{name: host, host: host, peer: <-s.net.Host(host).Peers}
			if n := len(slices.DeleteFunc(slices.Clone(s.links), func(l *linked) bool { return l.host != host })); n > 0 {
				l.name = fmt.Sprint(host, "/", n+1)
			}
			s.links = append(s.links, l)
			shown = append(shown, l.name+" is linked")
			synctest.Wait()
		}
	}
	for _, l := range s.links {
		for len(l.Requests) > 0 {
			r := <-l.Requests
			if s.closed { // a client that is closed may still say what it does not want any more
				continue
			}
			s.asked = append(s.asked, question{l, r})
			shown = append(shown, s.known(fmt.Sprintf("%s gets #%d %s %s", l.name, len(s.asked), r.Method, r.Params)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.calls)) {
		if c := s.calls[name]; len(c.ended) > 0 {
			shown = append(shown, s.known(name+" ends: "+<-c.ended))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.subs)) {
		shown = append(shown, s.told(name)...)
	}
	return shown
}

var madeID = regexp.MustCompile(`"requestId":"([^"]{16,})"`)

// known is a text with names in place of the request ids that the client made.
func (s *scripted) known(text string) string {
	for _, id := range madeID.FindAllStringSubmatch(text, -1) {
		if s.ids[id[1]] == "" {
			s.ids[id[1]] = fmt.Sprint("id", len(s.ids)+1)
		}
	}
	for id, name := range s.ids {
		text = strings.ReplaceAll(text, id, name)
	}
	return text
}

// told is what a subscription has told since.
func (s *scripted) told(name string) (shown []string) {
	for sub := s.subs[name]; ; {
		select {
		case e, ok := <-sub.Events():
			if !ok {
				delete(s.subs, name)
				return append(shown, name+" has ended: "+why(sub.Err()))
			}
			line := name + ":"
			if e.Type != "" {
				line += fmt.Sprintf(" version %d", e.Version)
			}
			if e.Gap {
				line += " behind a gap"
			}
			shown = append(shown, line)
		default:
			return shown
		}
	}
}

// why is what an error says that a caller can branch on.
func why(err error) string {
	if err == nil {
		return "well"
	}
	var words []string
	if u, ok := errors.AsType[*UnknownOutcomeError](err); ok {
		words = append(words, `unknown, "requestId":"`+u.RequestID+`"`)
		if u.Last != nil {
			words = append(words, "the last try was told "+why(u.Last))
		}
	}
	if _, ok := errors.AsType[*NotSentError](err); ok {
		words = append(words, "not sent")
	}
	known := slices.SortedFunc(slices.Values(refusals), func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	for _, e := range append(known, ErrWindow, ErrClosed, ErrConnectionLost, ErrQueueFull, ErrTooLarge, context.Canceled, context.DeadlineExceeded) {
		if errors.Is(err, e) {
			words = append(words, e.Error())
		}
	}
	if e, ok := errors.AsType[*CloseError](err); ok {
		words = append(words, fmt.Sprintf("close %d, final %v", e.Code, e.Final()))
	}
	if e, ok := errors.AsType[*DialError](err); ok {
		words = append(words, fmt.Sprintf("dial refused by %d: %s", e.Status, e.Reason))
	}
	return strings.Join(words, "; ")
}

func (s *scripted) upgrades(args []string) {
	h := s.net.Host(args[0])
	if args[1] == "0" {
		h.Refuse.Store(nil)
		return
	}
	args = append(args, "")
	h.Refuse.Store(&wspeer.Refusal{Status: s.number(args[1]), RetryAfter: args[2], Text: strings.TrimSpace(strings.Join(args[3:], " "))})
}

// subscribe opens a subscription of that name, which its call is called, too.
func (s *scripted) subscribe(name string, signers []string) {
	s.begin(name, func(ctx context.Context) (string, error) {
		sub, err := s.c.Subscribe(ctx, signers...)
		if err == nil {
			s.subs[name] = sub
		}
		return "", err
	})
}

// begin runs a call; what it gives is shown when it ends.
func (s *scripted) begin(name string, do func(ctx context.Context) (string, error)) {
	ctx, cancel := context.WithCancel(s.Context())
	c := &call{cancel, make(chan string, 1)}
	s.calls[name] = c
	go func() {
		result, err := do(ctx)
		if c.ended <- why(err); err == nil && result != "" {
			<-c.ended
			c.ended <- result
		}
	}()
}

// call calls a method of the client, with what it is given as JSON.
func (s *scripted) call(name, method, given string) {
	var p struct {
		Signer, RequestID, TxHash, Reason, Method string
		Nonce, Attempt                            int64
		Of                                        *int64 // which nonce a repair is of
		Count                                     int
		HoldMs                                    int64
		Guard                                     *wire.Guard
		RecordFirst, Unsent                       bool
	}
	if given != "" {
		expect.Must(s, json.Unmarshal([]byte(given), &p))
	}
	if p.Signer == "" {
		p.Signer = "s"
	}
	h, hold, began := Hold{p.Signer, p.Nonce, p.Attempt}, time.Duration(p.HoldMs)*time.Millisecond, time.Now()
	var options []MarkOption
	if p.Guard != nil {
		options = append(options, WithGuard(*p.Guard))
	}
	if p.Unsent {
		options = append(options, Unsent())
	}
	until := func(at time.Time, holdMs int64) string {
		if holdMs == held(0).HoldMs {
			return "" // what held answers, of tries that were not the first
		}
		return fmt.Sprint(", until ", at.Sub(began).Round(time.Second/2), " after the call")
	}
	s.begin(name, func(ctx context.Context) (result string, err error) {
		switch method {
		case "allocate":
			a, err := s.c.Allocate(ctx, AllocateRequest{Signer: p.Signer, Count: p.Count, RequestID: p.RequestID, Hold: hold, Guard: p.Guard, RecordFirst: p.RecordFirst})
			return fmt.Sprint("holds ", a.Holds(), until(a.Deadline, a.HoldMs)), err
		case "extend":
			e, err := s.c.Extend(ctx, h, hold)
			return fmt.Sprint("extended", until(e.Deadline, e.HoldMs)), err
		case "repair":
			r, err := s.c.Repair(ctx, RepairRequest{Signer: p.Signer, Nonce: p.Of, Hold: hold, RequestID: p.RequestID})
			return fmt.Sprint("repaired ", r.Hold(), until(r.Deadline, r.HoldMs)), err
		case "markUsed":
			_, err = s.c.MarkUsed(ctx, h, p.TxHash, options...)
		case "markSigned":
			_, err = s.c.MarkSigned(ctx, h, p.TxHash, options...)
		case "markRecyclable":
			_, err = s.c.MarkRecyclable(ctx, h, p.Reason, options...)
		case "setFloor":
			_, err = s.c.SetFloor(ctx, p.Signer, p.Nonce)
		case "status":
			r, err := s.c.Status(ctx, p.Signer)
			return fmt.Sprint("next ", r.Next), err
		case "list":
			_, err = s.c.List(ctx, wire.ListParams{Signer: p.Signer})
		case "info":
			_, err = s.c.Info(ctx)
		case "stats":
			_, err = s.c.Stats(ctx)
		default:
			var r json.RawMessage
			err = s.c.Call(ctx, method, []string{p.Signer}, &r)
			return string(r), err
		}
		return "", err
	})
}
