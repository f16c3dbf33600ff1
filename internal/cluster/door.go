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
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"noncegate/backpressure"
	"noncegate/internal/access/quota"
	"noncegate/wire"
)

const (
	// maxLinks bounds the links of other nodes to this one: each node keeps one, and for a moment a second
	// one where the first broke.
	maxLinks = 256
	// maxGreetings bounds the handshakes under way, and maxGreeting those of one network (quota.NetworkOf):
	// whoever opens connections and proves nothing takes no place of a link, and leaves some to other
	// networks. Nodes behind one proxy try again.
	maxGreetings, maxGreeting = 64, 16
	// MaxInbound bounds the connections of other nodes.
	MaxInbound = maxLinks + maxGreetings
)

var upgrader = websocket.Upgrader{
	ReadBufferSize: 16 << 10, WriteBufferSize: 16 << 10,
	CheckOrigin: func(req *http.Request) bool { return len(req.Header["Origin"]) == 0 }, // no node is a browser
}

// door lets other nodes in.
type door struct {
	inflight *backpressure.Gate // the requests of all other nodes
	seldom   [2]rate.Sometimes  // lines about refused nodes: of the secret, and others
	serving  sync.WaitGroup     // links, and what they wait for
	closing  atomic.Bool        // no request is taken any more

	mu      sync.Mutex // guards what follows
	leaving bool       // nobody is let in any more
	stopped bool       // nothing is begun any more that Stop would have to wait for
	// greetings counts the handshakes under way, greeting those of each network.
	greetings int
	greeting  map[netip.Prefix]int
	links     map[*inbound]struct{}
}

func (d *door) init(cfg *Config) {
	d.inflight, d.links, d.greeting = backpressure.NewGate(cfg.MaxTotal), make(map[*inbound]struct{}), make(map[netip.Prefix]int)
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
	network := quota.NetworkOf(req.RemoteAddr)
	if reason := r.door.enter(network); reason != "" {
		r.cfg.Refused(reason)
		w.Header().Set("Retry-After", "1")
		http.Error(w, sayFull, http.StatusServiceUnavailable)
		return
	}
	began := time.Now()
	ws, err := upgrader.Upgrade(w, req, nil)
	if err != nil { // it was answered
		r.door.greeted(network)
		r.door.serving.Done()
		return
	}
	go func() {
		defer r.door.serving.Done()
		r.host(ws, began, req.RemoteAddr, network)
	}()
}

// enter counts a handshake as under way, or says why it may not begin.
func (d *door) enter(network netip.Prefix) (reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.leaving:
		return RefusedLeaving
	case d.greetings == maxGreetings, d.greeting[network] == maxGreeting:
		return RefusedFull
	}
	d.greetings++
	d.greeting[network]++
	d.serving.Add(1)
	return ""
}

// greeted follows the end of a handshake.
func (d *door) greeted(network netip.Prefix) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.greetings--
	if d.greeting[network]--; d.greeting[network] == 0 {
		delete(d.greeting, network)
	}
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
func (r *Router) host(ws *websocket.Conn, began time.Time, remote string, network netip.Prefix) {
	defer ws.Close()
	stop := context.AfterFunc(r.ctx, func() { ws.Close() })
	from, err := r.receive(ws)
	in := r.newInbound(ws, from)
	defer in.cancel(nil)
	if err == nil {
		err = r.door.add(in, began)
	}
	if err == nil {
		defer r.door.remove(in)
		err = say(ws, from.welcome)
	}
	stop()
	r.door.greeted(network)
	if e, ok := errors.AsType[*refusal](err); ok {
		r.refused(e, remote, from)
		_ = say(ws, e.append([]byte{itRefusal})) // a courtesy, as the close frame
		_ = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(wire.ClosePolicy, ""), time.Now().Add(byeTimeout))
	}
	if err != nil {
		r.log.Debug("a link was not opened", "remote", remote, "error", err)
		return
	}
	r.log.Info("another node has connected", "node", from.node, "remote", remote)
	err = in.run(in.ctx, in)
	in.finish()
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
// what its clients sent after that. An error, without which remove must follow, is a refusal, or errGivenUp:
// a later one has come in since its upgrade began. One that was there before, with a higher number, is of a later start of
// the node, which this process does not know of yet, or of a start that the registry has lost.
func (d *door) add(in *inbound, began time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.leaving:
		return &refusal{status: http.StatusServiceUnavailable, reason: RefusedLeaving, sentence: sayFull}
	case len(d.links) == maxLinks:
		return &refusal{status: http.StatusServiceUnavailable, reason: RefusedFull, sentence: sayFull}
	}
	for other := range d.links {
		switch {
		case other.from.node != in.from.node:
		case other.from.number < in.from.number:
			other.giveUp()
		case other.from.number > in.from.number && other.entered.After(began):
			return errGivenUp
		}
	}
	in.entered = time.Now()
	d.links[in] = struct{}{}
	return nil
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
	d.closing.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	for in := range d.links {
		if in.share.Close() {
			in.close(wire.CloseServiceRestart, wire.CloseTextRestart)
		}
	}
	return len(d.links)
}
