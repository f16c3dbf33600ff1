package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
)

// world is what a transcript is played in: a gateway, which starts with the first line
// that needs it, and what is around it.
type world struct {
	tb     testing.TB
	setup  []func(*setup)
	g      *gateway
	chain  fakeChain
	people *inprocess.People // nil: nobody is asked who he is
	locks  *locksmith
	met    chan string
	owner  lease.Holder    // the other node that has taken a shard
	term   lease.ShardTerm // of that

	held    <-chan struct{} // has an entry for each write that waits
	release func()          // lets them go on
	open    func()          // lets the locks answer again

	auditLevel audit.Level
	auditLog   *audit.Log
	auditOut   inprocess.Buffer
	auditSaid  []string // what the transcript says of it
}

func newWorld(t testing.TB, way variant) *world {
	w := &world{tb: t, locks: newLocksmith(), met: make(chan string, 100)}
	w.setup = []func(*setup){withChain(&w.chain), func(s *setup) {
		s.Service.Rules.MaxLive, s.ws.MaxBatch = 5, 5
		s.ws.Met = func(name string) { w.met <- name }
	}}
	for _, word := range way.words {
		name, value, _ := strings.Cut(word, "=")
		w.setup = append(w.setup, func(s *setup) { must(t, w.set(s, name, value)) })
	}
	return w
}

func (w *world) gateway() *gateway {
	if w.g != nil {
		return w.g
	}
	if w.people != nil {
		w.setup = append(w.setup, func(s *setup) {
			s.ws.Auth = w.people
			s.ws.PingInterval = time.Second // sessions are looked at 16 times as often
		})
	}
	w.g = startGateway(w.tb, w.setup...)
	return w.g
}

// do carries out a directive about the world around the connections.
func (p *transcript) do(words []string) error {
	directive := directives[words[0]]
	if directive == nil {
		return fmt.Errorf("there is no directive %s", words[0])
	}
	if missing := directive.args - len(words[1:]); missing > 0 {
		return fmt.Errorf("%d words are missing", missing)
	}
	return directive.do(p, words[1:])
}

// number is a directive about a number.
func number(do func(p *transcript, n int) error) *directive {
	return &directive{1, func(p *transcript, a []string) error {
		n, err := strconv.Atoi(a[0])
		return errors.Join(err, do(p, n))
	}}
}

// is compares a word that comes last with what there is.
func is(args int, what func(p *transcript, args []string) any) *directive {
	return &directive{args, func(p *transcript, a []string) error {
		if got := fmt.Sprint(what(p, a)); got != a[args-1] {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	}}
}

type directive struct {
	args int // at least
	do   func(p *transcript, args []string) error
}

// directives are in testdata/README.md.
var directives = map[string]*directive{
	"with": {1, func(*transcript, []string) error { return nil }}, // see variants

	"store-works":     {0, func(p *transcript, _ []string) error { p.gateway().Store.SetHooks(memstore.Hooks{}); return nil }},
	"store-away":      {0, (*transcript).storeAway},
	"commits-unknown": {0, (*transcript).commitsUnknown},
	"hold-writes":     {0, (*transcript).holdWrites},
	"write-held":      {0, func(p *transcript, _ []string) error { wait.For(p, p.held, "a write"); return nil }},
	"release-writes":  {0, func(p *transcript, _ []string) error { p.release(); return nil }},
	"owner-releases":  {0, (*transcript).ownerReleases},
	"owned-by":        {2, func(p *transcript, a []string) error { return p.takeOver(a[0], a[1]) }},
	"next":            is(2, func(p *transcript, a []string) any { return p.gateway().next(a[0]) }),

	"chain-waits": number(func(p *transcript, n int) error { p.chain.awaitWaits(p, n); return nil }),
	"chain-late":  {0, func(p *transcript, _ []string) error { p.chain.endWaits(); return nil }},
	"chain":       {1, func(p *transcript, a []string) error { return p.chain.says(a) }},
	"unknown": {2, func(p *transcript, a []string) error {
		return p.gateway().rewrite(a[0], a[1], nonce.ReasonUnknown, nonce.Held)
	}},
	"unseen": {2, func(p *transcript, a []string) error {
		return p.gateway().rewrite(a[0], a[1], nonce.ReasonUnseen, nonce.Released)
	}},

	"draining":    {0, func(p *transcript, _ []string) error { p.gateway().srv.draining.Store(true); return nil }},
	"send-binary": {1, (*transcript).sendBinary},
	"send-bytes": number(func(p *transcript, n int) error {
		return p.client("").Conn.WriteMessage(websocket.TextMessage, make([]byte, n))
	}),
	"inflight":    number(func(p *transcript, n int) error { p.gateway().awaitInflight(n); return nil }),
	"gone":        {1, (*transcript).cut},
	"close":       {1, (*transcript).closeInOrder},
	"connections": {1, (*transcript).awaitConnections},
	"refused":     {2, (*transcript).wantRefused},
	"lines":       {1, func(p *transcript, _ []string) error { p.g.awaitNoLines(); return nil }},
	"watched":     is(2, func(p *transcript, a []string) any { return p.gateway().Hub.Watched(a[0]) }),
	"metrics":     {1, (*transcript).wantMetrics},

	"grant":    {3, (*transcript).grant},
	"quota":    {2, (*transcript).limit},
	"end":      {2, (*transcript).endSession},
	"ended":    {0, func(p *transcript, _ []string) error { p.g.awaitExpired(); return nil }},
	"remember": {1, (*transcript).remember},
	"audited":  {2, (*transcript).audited},

	"locks-away": {0, func(p *transcript, _ []string) error {
		p.locks.set(func() { p.locks.away = errors.New("away") })
		return nil
	}},
	"locks-shut":  {0, func(p *transcript, _ []string) error { p.open = p.locks.close(); p.tb.Cleanup(p.open); return nil }},
	"locks-open":  {0, func(p *transcript, _ []string) error { p.open(); return nil }},
	"locks-asked": number((*transcript).awaitLocksAsked),
	"locks-taken": {1, (*transcript).wantLocksTaken},
	"locks-left":  is(1, func(p *transcript, _ []string) any { return p.locks.Len() }),
}

func (p *transcript) storeAway([]string) error {
	away := &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("away")}
	p.gateway().Store.SetHooks(memstore.Hooks{Before: func(memstore.Call) error { return away }})
	return nil
}

func (p *transcript) commitsUnknown([]string) error {
	unknown := &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("cut")}
	away := &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("away")}
	p.gateway().Store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Op == memstore.OpCommit {
			return unknown
		}
		return away // so that the service cannot settle it
	}})
	return nil
}

func (p *transcript) holdWrites([]string) error {
	p.held, p.release = p.gateway().holdWrites()
	return nil
}

// takeOver lets a node take the shard of a signer: another one, which the service gets to
// know, or a later start of our own node id, which it does not.
func (p *transcript) takeOver(signer, node string) error {
	g := p.gateway()
	if node != g.Holder.Node {
		p.owner, p.term = g.moves(signer, node)
		return nil
	}
	by, err := g.Store.Register(context.Background(), lease.Presence{Node: node, URL: "ws://" + node + ".example/ws"})
	if err == nil {
		_, err = g.Store.Renew(context.Background(), by, time.Hour)
	}
	if err != nil {
		return err
	}
	rows, err := g.Store.Acquire(context.Background(), by, []int{nonce.ShardOf(signer, g.Store.Shards())})
	if err == nil && !rows[0].Taken {
		err = errors.New("not acquired")
	}
	return err
}

// ownerReleases lets the other node release the shard that it has taken last.
func (p *transcript) ownerReleases([]string) error {
	_, err := p.g.Store.Release(p.Context(), p.owner, []lease.ShardTerm{p.term})
	return err
}

func (p *transcript) sendBinary(a []string) error {
	return p.client("").Conn.WriteMessage(websocket.BinaryMessage, []byte(a[0]))
}

func (p *transcript) awaitConnections(a []string) error {
	wait.Until(p, a[0]+" connections", func() bool { return strconv.Itoa(p.g.srv.conns.len()) == a[0] })
	return nil
}

// closeInOrder ends the connection of a speaker with a close frame.
func (p *transcript) closeInOrder(a []string) error {
	c := p.client(a[0])
	err := c.Conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(patience))
	c.Closed()
	c.ended = true
	return err
}

// cut ends the connection of a speaker without a close frame, and waits until the
// gateway has seen it.
func (p *transcript) cut(a []string) error {
	c, before := p.client(a[0]), p.g.srv.conns.len()
	delete(p.clients, a[0])
	err := c.Conn.Close()
	wait.Until(p, "the end of the connection", func() bool { return p.g.srv.conns.len() < before })
	return err
}

// wantRefused tries to connect under a name, and compares status and text of the answer.
func (p *transcript) wantRefused(a []string) error {
	status, err := strconv.Atoi(a[1])
	if err != nil {
		return err
	}
	response, said := p.gateway().wantRefused(inprocess.As(a[0]), status)
	if want := strings.Join(a[2:], " "); want != "" && said != want {
		return fmt.Errorf("it says %q", said)
	}
	if later := status == 429 || status == 503; later && response.Header.Get("Retry-After") == "" {
		return errors.New("no Retry-After")
	}
	return nil
}

func (p *transcript) wantMetrics(a []string) error {
	for _, word := range a {
		series, value, _ := strings.Cut(word, "=")
		want, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		p.gateway().WantMetrics(map[string]float64{series: want})
	}
	return nil
}

// grant gives a name rights on a signer or on all. With the first the gateway asks
// everybody who he is.
func (p *transcript) grant(a []string) error {
	if p.people == nil {
		if p.g != nil {
			return errors.New("the gateway has started without authentication")
		}
		p.people = new(inprocess.People)
	}
	granted := access.Right(0)
	for _, word := range a[2:] {
		switch word {
		case "every":
			granted = inprocess.EveryRight
		case "none":
		default:
			right := rightNamed(strings.TrimPrefix(word, "-"))
			if right == 0 {
				return fmt.Errorf("there is no right %s", word)
			}
			granted |= right
			if strings.HasPrefix(word, "-") {
				granted &^= right
			}
		}
	}
	p.people.Grant(a[0], a[1], granted)
	return nil
}

// rightNamed is 0 where there is none.
func rightNamed(word string) access.Right {
	for right := access.Right(1); right <= inprocess.EveryRight; right <<= 1 {
		if right.String() == word {
			return right
		}
	}
	return 0
}

func (p *transcript) limit(a []string) error {
	var q access.Quota
	for _, word := range a[1:] {
		name, value, _ := strings.Cut(word, "=")
		if err := expect.Set(&q, name, value); err != nil {
			return err
		}
	}
	p.people.Limit(a[0], q)
	return nil
}

func (p *transcript) endSession(a []string) error {
	why := map[string]error{"expired": access.ErrExpired, "revoked": access.ErrRevoked}[a[1]]
	if why == nil {
		return errors.New("a session ends expired or revoked")
	}
	p.people.End(a[0], why)
	return nil
}

// remember has the store keep the names of those whom the gateway has met since.
func (p *transcript) remember(names []string) error {
	for _, want := range names {
		if met := wait.For(p, p.met, want); met != want {
			return fmt.Errorf("it met %s", met)
		}
	}
	return p.g.Store.RememberNames(p.Context(), names)
}

// audited is a line of the audit at a level, and at those that say more.
func (p *transcript) audited(a []string) error {
	level, err := audit.ParseLevel(a[0])
	if err == nil && level <= p.auditLevel {
		p.auditSaid = append(p.auditSaid, strings.Join(a[1:], " "))
	}
	return err
}

// finishAudit compares what the audit has said. All connections have ended, or will.
func (p *transcript) finishAudit() {
	wait.Until(p, "the end of the connections", p.g.srv.conns.empty)
	must(p, p.auditLog.Stop(p.Context()))
	var got []string
	for line := range strings.Lines(p.auditOut.String()) {
		got = append(got, p.auditLine(line))
	}
	if got, want := strings.Join(got, "\n"), strings.Join(p.auditSaid, "\n"); got != want {
		p.Errorf("the audit says\n%s\nwant\n%s", got, want)
	}
}

// auditLine is one of the audit as a transcript has it.
func (p *transcript) auditLine(line string) string {
	var entry map[string]any
	must(p, json.Unmarshal([]byte(line), &entry))
	if host, _, err := net.SplitHostPort(fmt.Sprint(entry["remote"])); err != nil || host != "127.0.0.1" {
		p.Errorf("no address in %s", line)
	}
	said := fmt.Sprint(entry["msg"])
	for _, key := range []string{"principal", "credential", "method", "signer", "nonce", "count", "outcome", "right", "why"} {
		if entry[key] != nil {
			said += fmt.Sprintf(" %s=%v", key, entry[key])
		}
	}
	return said
}

func (p *transcript) awaitLocksAsked(n int) error {
	wait.Until(p, "the locks to be asked", func() (so bool) {
		p.locks.set(func() { so = p.locks.steps == n })
		return so
	})
	return nil
}

// wantLocksTaken compares how many locks were taken, each with a value of its own.
func (p *transcript) wantLocksTaken(a []string) (err error) {
	p.locks.set(func() {
		values := slices.Compact(slices.Sorted(slices.Values(p.locks.taken)))
		if strconv.Itoa(len(values)) != a[0] || len(values) != len(p.locks.taken) {
			err = fmt.Errorf("locks were taken with the values %q", p.locks.taken)
		}
	})
	return err
}
