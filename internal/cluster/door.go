package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"noncegate/backpressure"
	"noncegate/wire"
)

// MaxInbound bounds the links of other nodes to this one, those included whose handshake is under
// way: each node keeps one, and for a moment a second one where the first broke.
const MaxInbound = 256

// maxGreeting bounds the handshakes under way of one address: whoever opens connections and says
// nothing leaves slots to the nodes. Those behind one proxy try again.
const maxGreeting = 16

var upgrader = websocket.Upgrader{
	ReadBufferSize: 16 << 10, WriteBufferSize: 16 << 10,
	CheckOrigin: func(*http.Request) bool { return true }, // no browser proves the secret
}

// door lets other nodes in.
type door struct {
	inflight *backpressure.Gate // the requests of all other nodes
	seldom   [2]rate.Sometimes  // lines about refused nodes: of the secret, and others
	serving  sync.WaitGroup     // links, and what they wait for

	mu      sync.Mutex // guards what follows
	leaving bool       // nobody is let in any more
	closing bool       // no request is taken any more
	stopped bool       // nothing is begun any more that Stop would have to wait for
	slots   int        // taken, by links and by handshakes
	// greeting counts the handshakes under way by the address that they come from.
	greeting map[netip.Addr]int
	links    map[*inbound]struct{}
}

func (d *door) init(cfg *Config) {
	d.inflight, d.links, d.greeting = backpressure.NewGate(cfg.MaxTotal), make(map[*inbound]struct{}), make(map[netip.Addr]int)
	for i := range d.seldom {
		d.seldom[i].Interval = time.Second
	}
}

// ServeHTTP lets another node open a link, or says why not.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch why := r.stranger(req); {
	case !websocket.IsWebSocketUpgrade(req):
		http.Error(w, "other nodes open links here", http.StatusBadRequest)
		return
	case why != "":
		r.refused(&refusal{status: http.StatusForbidden, reason: RefusedSecret, sentence: why}, req.RemoteAddr, greeted{})
		w.Header().Set("Connection", "close")
		http.Error(w, why, http.StatusForbidden)
		return
	}
	address := addressOf(req)
	if reason := r.door.enter(address); reason != "" {
		r.cfg.Refused(reason)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this node takes no links now", http.StatusServiceUnavailable)
		return
	}
	began := time.Now()
	ws, err := upgrader.Upgrade(w, req, nil)
	if err != nil { // it was answered
		r.door.greeted(address)
		r.door.exit()
		r.door.serving.Done()
		return
	}
	go func() {
		defer r.door.serving.Done()
		defer r.door.exit()
		r.host(ws, began, req.RemoteAddr, address)
	}()
}

// addressOf is the address that a connection comes from, without its port.
func addressOf(req *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(req.RemoteAddr) // zero: those that cannot be read count as one
	return a.Addr().Unmap()
}

// enter takes a slot for a link and its handshake, or says why there is none.
func (d *door) enter(address netip.Addr) (reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.leaving:
		return RefusedLeaving
	case d.slots == MaxInbound, d.greeting[address] == maxGreeting:
		return RefusedFull
	}
	d.slots++
	d.greeting[address]++
	d.serving.Add(1)
	return ""
}

// greeted follows the end of a handshake.
func (d *door) greeted(address netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.greeting[address]--; d.greeting[address] == 0 {
		delete(d.greeting, address)
	}
}

func (d *door) exit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots--
}

// stranger is why whoever knocks can be no node, "" if it may be one. With a secret the handshake
// says so.
func (r *Router) stranger(req *http.Request) string {
	h := req.Header
	switch a, err := netip.ParseAddrPort(req.RemoteAddr); {
	case r.cfg.Secret != "":
		return ""
	case r.cfg.Known:
		return "where clients must say who they are, nodes need --node-secret"
	case err != nil || !a.Addr().Unmap().IsLoopback():
		return "without --node-secret nodes talk over loopback only"
	case cmp.Or(h.Get("X-Forwarded-For"), h.Get("Forwarded"), h.Get("Via")) != "":
		return "it came through a proxy, and without --node-secret nodes talk directly"
	}
	return ""
}

// host serves one link from its handshake to its end.
func (r *Router) host(ws *websocket.Conn, began time.Time, remote string, address netip.Addr) {
	defer ws.Close()
	stop := context.AfterFunc(r.ctx, func() { ws.Close() })
	from, err := r.receive(ws)
	stop()
	r.door.greeted(address)
	if e, ok := errors.AsType[*refusal](err); ok {
		r.refused(e, remote, from)
		_ = say(ws, e.append([]byte{itRefusal})) // a courtesy, as the close frame
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(wire.ClosePolicy, ""), time.Now().Add(byeTimeout))
	}
	if err != nil {
		r.log.Debug("a link was not opened", "remote", remote, "error", err)
		return
	}
	in := r.newInbound(ws, from)
	defer in.cancel(nil)
	if !r.door.add(in, began) {
		return
	}
	r.log.Info("another node has connected", "node", from.node, "remote", remote)
	err = in.run(in.ctx, in)
	in.finish()
	r.door.remove(in)
	level := slog.LevelInfo
	if errors.Is(err, errNonsense) {
		level = slog.LevelError
	}
	r.log.Log(context.Background(), level, "the link of another node has ended", "node", from.node, "error", err)
}

// refused logs and counts a node that is refused. It tries again and again, and anyone can claim to
// be a node: the log says it once a second at most, the counter counts all.
func (r *Router) refused(e *refusal, remote string, from greeted) {
	seldom := &r.door.seldom[0]
	if e.reason != "" {
		r.cfg.Refused(e.reason)
	}
	if e.reason != RefusedSecret {
		seldom = &r.door.seldom[1]
	}
	seldom.Do(func() {
		clip := func(id string) string { return fmt.Sprintf("%.128s", id) }
		r.log.Warn("refused a node's connection", "reason", e.sentence, "remote", remote, "from", clip(from.node), "to", clip(from.to))
	})
}

// add takes in a link before anything of it is read, and ends those that its node has given up for
// it. What the network brings late of them would be done behind what the node has sent again, and
// what its clients sent after that. false: this one is itself given up, as a later one has come in
// since its upgrade began. One that was there before, with a higher number, is of a later start of
// the node, which this process does not know of yet, or of a start that the registry has lost.
func (d *door) add(in *inbound, began time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for other := range d.links {
		switch {
		case other.from.node != in.from.node:
		case other.from.number < in.from.number:
			other.giveUp()
		case other.from.number > in.from.number && other.entered.After(began):
			return false
		}
	}
	in.entered = time.Now()
	d.links[in] = struct{}{}
	return true
}

func (d *door) remove(in *inbound) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.links, in)
}

// Leave lets no other node in any more. Links that are there stay.
func (r *Router) Leave() {
	r.door.mu.Lock()
	defer r.door.mu.Unlock()
	r.door.leaving = true
}

// Drain refuses further requests of other nodes, and closes each link of theirs once what it has in
// flight was answered. It returns when all have ended, or with an error when ctx is over before.
func (r *Router) Drain(ctx context.Context) error {
	r.Leave()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := r.door.closeIdle()
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("drain: %d links of other nodes are left, %d requests in flight: %w", left, r.door.inflight.Used(), context.Cause(ctx))
		}
	}
}

// begin runs do in a goroutine that Stop waits for; false: Stop has begun to wait, and do does not run.
func (d *door) begin(do func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.serving.Go(do)
	}
	return !d.stopped
}

// closeIdle closes links that have nothing in flight. A request that comes in just now is either in
// flight before, and the link stays, or it is not taken: never is one done whose answer has no way out.
func (d *door) closeIdle() (left int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	for in := range d.links {
		if in.share.Close() {
			in.close(wire.CloseServiceRestart, wire.CloseTextRestart)
		}
	}
	return len(d.links)
}

func (d *door) isClosing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closing
}
