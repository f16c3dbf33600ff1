package ws

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// NodeConfig says how connections of other nodes are let in and bounded. The zero
// NodeConfig lets none in.
type NodeConfig struct {
	// ID is the node id of this node; "": no other node is let in.
	ID string
	// Secret is what every node must show. "": nodes are let in over loopback
	// only, by the address that their connection comes from, and where clients must
	// say who they are not at all.
	Secret string
	// Store tells the store from others, as it is now: a node of another store is
	// not let in, even one that means a node of this id. nil: it is not compared.
	Store func() string
	// MaxInflight bounds the requests of one node that are not answered yet:
	// best what the sender lets be under way (--forward-queue). More than a
	// quarter of MaxInflightTotal counts as that.
	MaxInflight int

	// known: clients must say who they are. What is on this host is no node for that:
	// as one it would be asked for no credential, and would have every right.
	known bool
}

// MaxNodeConnections bounds the connections of other nodes, which do not count
// against MaxConnections: a gateway that is full of clients must still serve what
// other nodes bring, or their clients would wait for a slot here. Each node keeps
// one, and for a moment a second one where the first broke.
const MaxNodeConnections = 256

// peer is the other node of a node connection: who it is, and the paths of what it
// has under way here.
type peer struct {
	id   string
	link int64 // of its connections the one with the highest is in use; 0: it did not say
	// entered is when the connection came in.
	entered time.Time

	mu      sync.Mutex // guards what follows
	streams map[uint64]*inboundStream
	broken  []*inboundStream // on which something was sent back and nothing is under way, oldest first
}

// inboundStream is one of the sender's paths here, as long as requests of it are under way,
// or may still come although one was sent back.
type inboundStream struct {
	number  uint64 // 0: the sender gave none; then it is the stream of one request
	path    nonce.Path
	n       int       // requests under way
	emptyAt time.Time // when the last one ended; broken streams only
}

const (
	// BrokenStreamTTL is how long a broken stream is remembered. The sender begins a new
	// one when it has all answers, so it is enough if it gives up every request sooner
	// than this (--forward-timeout): then none can still be on its way.
	BrokenStreamTTL = 30 * time.Second
	// maxBroken bounds the broken streams remembered for one connection. Each cost
	// the sender a request that moved, so more come in half a minute only if
	// signers move by the ten thousand; then the oldest are forgotten sooner.
	maxBroken = 1 << 16
)

func newPeer(id string) *peer { return &peer{id: id, streams: make(map[uint64]*inboundStream)} }

// number takes in which of the node's connections this is.
func (p *peer) number(r *http.Request) {
	p.link, _ = strconv.ParseInt(r.Header.Get(wire.HeaderNodeLink), 10, 64) // else it stays 0
	p.entered = time.Now()
}

// endOlder ends the connections that the node has given up for a later one, before anything of this
// one is read, whose upgrade began at a time. What the network brings late of them would be done
// behind what the node has sent again, and what its clients sent after that. This one is itself
// given up if a later one has come in meanwhile. One that was there before, with a higher number, is
// of a later start of the node, which this process does not know of yet, or of a start that the
// registry has lost: it went back.
func (s *Server) endOlder(c *conn, began time.Time) {
	for _, o := range s.conns.all() {
		switch {
		case o.peer == nil || o.peer.id != c.peer.id:
		case o.peer.link < c.peer.link:
			o.giveUp()
		case o.peer.link > c.peer.link && o.peer.entered.After(began):
			c.giveUp()
		}
	}
}

// giveUp ends the connection. What was read of it and has not begun is not done.
func (c *conn) giveUp() {
	c.gone.Store(true)
	c.out.Kill(errPeerGone)
}

// enter counts a request as under way on the sender's stream of that number.
func (p *peer) enter(number uint64) *inboundStream {
	if number == 0 {
		return &inboundStream{n: 1}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.streams[number]
	if w == nil {
		w = &inboundStream{number: number}
		p.streams[number] = w
	}
	w.n++
	return w
}

// leave counts it as done. It comes before the answer can leave: a path on which
// nothing was sent back may be forgotten and begun again, a broken one may not,
// because the sender may have sent more before it knew.
func (p *peer) leave(w *inboundStream) {
	if w.number == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.n--
	switch {
	case w.n > 0:
	case w.path.Broken():
		w.emptyAt = time.Now()
		p.broken = append(p.broken, w)
		p.forgetLocked(w.emptyAt)
	default:
		delete(p.streams, w.number)
	}
}

// forgetLocked drops the broken streams that are old, and the oldest of too many. A
// stream that was entered again stands in the list once more, later.
func (p *peer) forgetLocked(now time.Time) {
	for len(p.broken) > 0 {
		w := p.broken[0]
		if now.Sub(w.emptyAt) < BrokenStreamTTL && len(p.broken) <= maxBroken {
			return
		}
		p.broken = p.broken[1:]
		if w.n == 0 && now.Sub(w.emptyAt) >= BrokenStreamTTL || len(p.broken) >= maxBroken {
			delete(p.streams, w.number)
		}
	}
}

// admitNode looks whether an upgrade is another node's, and if it may come in.
// node is its id, "" for a client. Not ok: it was answered.
func (s *Server) admitNode(w http.ResponseWriter, r *http.Request) (node string, ok bool) {
	from, isNode := r.Header[wire.HeaderNode]
	if !isNode {
		return "", true
	}
	node = from[0]
	switch refused := s.cfg.Nodes.refusal(r); {
	case refused != "":
		s.refuseNode(w, r, http.StatusForbidden, upgradeNodeSecret, refused)
	case s.cfg.Nodes.strange(r):
		s.refuseNode(w, r, http.StatusMisdirectedRequest, upgradeMisdirected,
			"this gateway keeps its nonces in another database: the --advertise-url of the node that was meant leads out of its cluster")
	case node == "" || s.cfg.Nodes.ID == "" || node == s.cfg.Nodes.ID || r.Header.Get(wire.HeaderNodeTo) != s.cfg.Nodes.ID:
		s.refuseNode(w, r, http.StatusMisdirectedRequest, upgradeMisdirected,
			"this is not the node that was meant: its --advertise-url leads to another one, or its id has changed")
	default:
		return node, true
	}
	return "", false
}

// setPrincipal makes the op of another node that of the principal who asked there. A
// client does not say who it is.
func (c *conn) setPrincipal(r *request, principal string, markAny bool) *wire.Error {
	switch {
	case c.peer != nil && principal != "":
		p, err := nonce.ParsePrincipal(principal)
		if err != nil {
			return invalidParams("principal", err.Error())
		}
		r.op.Principal, r.op.MarkAny = p, markAny
	case c.peer != nil:
		r.op.MarkAny = markAny
	case principal != "":
		return invalidParams("principal", "unknown name")
	case markAny:
		return invalidParams("markAny", "unknown name")
	}
	return nil
}

// refusal says why whoever sent r is not believed to be a node; "": it is. How
// long the comparison takes says nothing about the secret.
func (n *NodeConfig) refusal(r *http.Request) string {
	if n.Secret == "" {
		switch {
		case n.known:
			return "where clients must say who they are, nodes need --node-secret"
		case !loopback(r.RemoteAddr):
			return "without --node-secret nodes talk over loopback only"
		case proxied(r.Header):
			return "it came through a proxy, and without --node-secret nodes talk directly"
		}
		return ""
	}
	given, want := sha256.Sum256([]byte(r.Header.Get(wire.HeaderNodeSecret))), sha256.Sum256([]byte(n.Secret))
	if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
		return ""
	}
	return "the node secret is missing or not the one of this node"
}

// proxied reports whether a proxy says that it brought the request: then loopback
// says nothing about who sent it.
func proxied(h http.Header) bool {
	return h.Get("X-Forwarded-For") != "" || h.Get("Forwarded") != "" || h.Get("Via") != ""
}

// strange reports whether whoever sent r works on another store. Served here, its
// clients would be given nonces that have nothing to do with theirs.
func (n *NodeConfig) strange(r *http.Request) bool {
	return n.Store != nil && r.Header.Get(wire.HeaderNodeStore) != n.Store()
}

// loopback reports whether the address of a connection's peer is on this host.
func loopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// refuseNode answers a node that may not come in, with a sentence for whoever runs
// it. A node tries again and again, and anyone can claim to be a node: the log
// says it once a second at most for each reason, the counter counts all.
func (s *Server) refuseNode(w http.ResponseWriter, r *http.Request, status int, reason upgradeReason, why string) {
	s.counters.upgradeRefused.Inc(reason)
	logged := &s.logMisdirected
	if status == http.StatusForbidden {
		logged = &s.logForbidden
	}
	logged.Do(func() {
		s.log.Warn("refused a node's connection", "reason", why, "remote", r.RemoteAddr,
			"from", clip(r.Header.Get(wire.HeaderNode)), "to", clip(r.Header.Get(wire.HeaderNodeTo)))
	})
	w.Header().Set("Connection", "close") // who guesses secrets needs a socket for each
	http.Error(w, why, status)
}
