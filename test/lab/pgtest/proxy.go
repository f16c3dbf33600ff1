//go:build unix

package pgtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// idleReply is how the server ends its answer to a transaction: the message ReadyForQuery, outside of any transaction.
var idleReply = []byte{'Z', 0, 0, 0, 5, 'I'}

// dialTimeout bounds the wait for the server; Close may take that long.
const dialTimeout = 5 * time.Second

// maxLate bounds what of one connection's late replies is on its way; past it the server waits, as it does for a network whose window is
// full.
const maxLate = 1024

// Proxy is a TCP proxy in front of a server. It starts by forwarding; what a method changes holds for open connections and for new ones.
type Proxy struct {
	ln    net.Listener
	wg    sync.WaitGroup // the accept loop and everything it starts
	trips atomic.Int64

	mu       sync.Mutex // guards what follows
	target   string
	refusing bool
	closed   bool
	flowing  chan struct{} // closed while bytes pass; a new one in a black hole
	links    map[*link]struct{}
	cut      *cut // armed and not yet met by a connection; nil: none
	lateBy   time.Duration
}

// link is one client's connection and its twin to the server.
type link struct {
	client, server net.Conn
	done           chan struct{} // closed by the first end
	end            func()
	late           chan lateReply                // nil: replies pass at once
	cut            atomic.Pointer[cut]           // replies are withheld; nil: they are not
	opened         string                        // the first bytes of the client; guarded by Proxy.mu
	stranded       atomic.Pointer[chan struct{}] // closed: what the client sends reaches the server; nil: at once
}

// lateReply is handed on when it is due. Each has its own time: what comes close together arrives close together, as over a long wire.
type lateReply struct {
	due  time.Time
	data []byte
}

// cut is one order of CutReplies or DelayRequest.
type cut struct {
	match     []byte
	statement string        // instead of match: in the text of a prepared statement
	late      time.Duration // DelayRequest: how long the request is held back
	anyReply  bool          // the first bytes of the answer end it
	answered  chan struct{}
}

// NewProxy listens on a free port of the loopback address and forwards to target, host:port. The caller must Close it.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{target: target, ln: ln, flowing: make(chan struct{}), links: make(map[*link]struct{})}
	close(p.flowing)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// URL is rawURL with the proxy's address instead of the server's.
func (p *Proxy) URL(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", err
	}
	u.Host = p.Addr()
	return u.String(), nil
}

// Forward ends Refuse and BlackHole: connections are taken, bytes pass, those first that a black hole held back.
func (p *Proxy) Forward() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// Refuse ends every connection and, until Forward, every new one at once: a network that says so.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	p.dropLocked()
}

// BlackHole lets connections stand and be made and, until Forward, passes no byte in either direction: a network that says nothing.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default:
	}
}

// CutReplies waits for a connection whose client sends match (such as "commit"; empty for anything) and loses the reply: that and what
// follows is forwarded to the server, what the server answers is thrown away. When the server has ended its answer, so that the transaction
// is decided, both sides are closed, and then the channel; it stays open if the server goes away without an answer. Other connections and
// later ones are not touched; a new call replaces one that has met no connection yet.
//
// No earlier request of that connection may be under way: its answer would be taken for the one to lose.
func (p *Proxy) CutReplies(match string) <-chan struct{} { return p.order(&cut{match: []byte(match)}) }

// CutAnyReply is CutReplies, or with late above 0 DelayRequest, for servers that do not speak PostgreSQL's protocol: the first bytes of the
// answer are the end of it. Of requests sent in one go, all have reached the server by then.
func (p *Proxy) CutAnyReply(match string, late time.Duration) <-chan struct{} {
	return p.order(&cut{match: []byte(match), late: late, anyReply: true})
}

// DelayRequest is CutReplies with a request that arrives late: the client's side is closed at once, when what it sent has not reached the
// server, and the server gets it after late, which must be above 0, when the client may have been busy elsewhere for long. The channel is
// closed when the server has ended its answer.
func (p *Proxy) DelayRequest(match string, late time.Duration) <-chan struct{} {
	return p.order(&cut{match: []byte(match), late: late})
}

// Retarget forwards new connections to another server; open ones stay where they are.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Drop ends every connection; new ones are taken.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

// Strand keeps what is sent from now on over the connections whose first bytes begin with opened, and loses what the server answers.
// Others and later ones are not touched. giveUp ends the connections for their clients; deliver then has all that was kept reach the
// server, for which they last until it ends them.
func (p *Proxy) Strand(opened string) (giveUp, deliver func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*link
	late := make(chan struct{})
	for l := range p.links {
		if strings.HasPrefix(l.opened, opened) {
			found = append(found, l)
			l.cut.Store(&cut{answered: make(chan struct{})})
			l.stranded.Store(&late)
		}
	}
	giveUp = func() {
		for _, l := range found {
			l.client.Close()
		}
	}
	return giveUp, sync.OnceFunc(func() { close(late) })
}

func (p *Proxy) dropLocked() {
	for l := range p.links {
		l.end()
	}
}

// DelayReplies has the replies on connections made from now on arrive late by d, one not waiting for another: a server that is that much
// farther away. 0 ends it.
func (p *Proxy) DelayReplies(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lateBy = d
}

func (p *Proxy) order(c *cut) <-chan struct{} {
	c.answered = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
	return c.answered
}

// Close ends all connections and waits for the goroutines. It may be called twice.
func (p *Proxy) Close() (err error) {
	p.mu.Lock()
	if !p.closed {
		err = p.ln.Close()
	}
	p.closed, p.refusing = true, true
	p.dropLocked()
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve dials the server and copies both ways until either side ends.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		return // the client sees its connection end, as it would without us
	}
	l := &link{client: client, server: server, done: make(chan struct{})}
	l.end = sync.OnceFunc(func() {
		close(l.done)
		client.Close()
		server.Close()
	})
	defer l.end()
	p.mu.Lock()
	refusing, by := p.refusing, p.lateBy
	if !refusing {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if refusing {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()
	if by > 0 {
		l.late = make(chan lateReply, maxLate)
		p.wg.Go(l.replyLate)
	}
	p.wg.Go(func() {
		defer l.end()
		p.copyRequests(l)
	})
	p.copyReplies(l, by)
}

// replyLate writes what was queued when it is due, until the link has ended.
func (l *link) replyLate() {
	defer l.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var r lateReply
		select {
		case r = <-l.late:
			timer.Reset(time.Until(r.due))
		case <-l.done:
			return
		}
		select {
		case <-timer.C:
		case <-l.done:
			return
		}
		if _, err := l.client.Write(r.data); err != nil {
			return
		}
	}
}

// wait returns once bytes may pass, or false when the link has ended.
func (p *Proxy) wait(l *link) bool {
	p.mu.Lock()
	flowing := p.flowing
	p.mu.Unlock()
	select {
	case <-flowing:
		return true
	case <-l.done:
		return false
	}
}

func (p *Proxy) copyRequests(l *link) {
	var tail []byte // end of what was read before, where a match may begin
	said := statements{trips: &p.trips}
	var kept []byte
	copyFrom(l.client, func(data []byte) bool {
		if !p.wait(l) {
			return false
		}
		if l.stranded.Load() != nil {
			kept = append(kept, data...)
			return true
		}
		p.begin(l, data)
		tail = p.armed(l, append(tail, data...), said.feed(data))
		if c := l.cut.Load(); c != nil && c.late > 0 {
			l.deliverLate(c, data)
			return false
		}
		_, err := l.server.Write(data)
		return err == nil
	})
	late := l.stranded.Load()
	if late == nil {
		return
	}
	select {
	case <-*late:
		_, _ = l.server.Write(kept)
		<-l.done
	case <-l.done:
	}
}

// begin notes the first bytes of a connection.
func (p *Proxy) begin(l *link, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.opened == "" {
		l.opened = string(data[:min(len(data), 64)])
	}
}

// deliverLate closes the client's side, gives the server what it sent after a while, and returns once the server has answered or the link
// has ended.
func (l *link) deliverLate(c *cut, data []byte) {
	l.client.Close()
	timer := time.NewTimer(c.late)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
		return
	}
	if _, err := l.server.Write(data); err != nil {
		return
	}
	<-l.done // closed with the end of the answer, or by the end of the server
}

// armed hands the pending cut to the link whose client sent what it waits for. bound are the texts of the prepared statements that it
// executes with its last bytes. It returns the end of sent that the next bytes may complete to a match.
func (p *Proxy) armed(l *link, sent []byte, bound []string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cut == nil:
		return nil
	case p.cut.statement != "":
		if !slices.ContainsFunc(bound, func(text string) bool { return strings.Contains(text, p.cut.statement) }) {
			return nil
		}
	case !bytes.Contains(sent, p.cut.match):
		keep := min(len(sent), len(p.cut.match)-1)
		return append(sent[:0], sent[len(sent)-keep:]...)
	}
	l.cut.Store(p.cut)
	p.cut = nil
	return nil
}

func (p *Proxy) copyReplies(l *link, by time.Duration) {
	var withheld []byte // end of what was thrown away
	copyFrom(l.server, func(data []byte) bool {
		if !p.wait(l) {
			return false
		}
		c := l.cut.Load()
		switch {
		case c == nil && l.late != nil:
			select {
			case l.late <- lateReply{time.Now().Add(by), bytes.Clone(data)}:
				return true
			case <-l.done:
				return false
			}
		case c == nil:
			_, err := l.client.Write(data)
			return err == nil
		}
		withheld = append(withheld, data...)
		withheld = withheld[max(0, len(withheld)-len(idleReply)):]
		if !c.anyReply && !bytes.Equal(withheld, idleReply) {
			return true
		}
		l.end()
		close(c.answered)
		return false
	})
}

// copyFrom hands what it reads to pass until that returns false or from ends.
func copyFrom(from net.Conn, pass func(data []byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !pass(buf[:n]) || err != nil {
			return
		}
	}
}

// RoundTrips is how often clients have waited for PostgreSQL: each Sync and each simple query is one.
func (p *Proxy) RoundTrips() int64 { return p.trips.Load() }

// CutStatement is CutReplies for the next execution of a prepared statement whose text contains text. Its preparation is let through. Only
// connections that were made through the proxy since it listens are known well enough.
func (p *Proxy) CutStatement(text string) <-chan struct{} {
	return p.order(&cut{statement: text})
}

// DelayStatement is DelayRequest for the next execution of such a statement.
func (p *Proxy) DelayStatement(text string, late time.Duration) <-chan struct{} {
	return p.order(&cut{statement: text, late: late})
}

// statements follows what a client of PostgreSQL sends, so far as to know which prepared statements it executes. What is not PostgreSQL's
// protocol it gives up on.
type statements struct {
	buf     []byte // a message that has not come whole
	began   bool   // the startup message is over: messages have a type
	foreign bool   // another protocol
	texts   map[string]string
	trips   *atomic.Int64
}

// Codes of messages that come before the startup message, and the version of the protocol.
const (
	requestSSL    = 80877103
	requestGSS    = 80877104
	protocolThree = 3 << 16
	longestStart  = 10_000 // bytes, as the server has it
)

// feed takes what was sent next, and returns the texts of the statements that are bound by it.
func (s *statements) feed(data []byte) (bound []string) {
	if s.foreign {
		return nil
	}
	s.buf = append(s.buf, data...)
	for {
		kind, body, ok := s.next()
		if !ok {
			return bound
		}
		switch kind {
		case 'P': // Parse: name, text
			name, rest, _ := bytes.Cut(body, []byte{0})
			text, _, _ := bytes.Cut(rest, []byte{0})
			if s.texts == nil {
				s.texts = make(map[string]string)
			}
			s.texts[string(name)] = string(text)
		case 'B': // Bind: portal, name
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			bound = append(bound, s.texts[string(name)])
		case 'S', 'Q': // Sync, Query
			s.trips.Add(1)
		}
	}
}

// next takes a whole message from the buffer. The body is valid until the next call of feed.
func (s *statements) next() (kind byte, body []byte, ok bool) {
	head := 0
	if s.began {
		head = 1
	}
	if len(s.buf) < head+4 {
		return 0, nil, false
	}
	size := int(binary.BigEndian.Uint32(s.buf[head:]))
	if !s.began && (size < 8 || size > longestStart) || size < 4 {
		s.foreign, s.buf = true, nil
		return 0, nil, false
	}
	if len(s.buf) < head+size {
		return 0, nil, false
	}
	message := s.buf[:head+size]
	s.buf = s.buf[head+size:]
	if s.began {
		return message[0], message[5:], true
	}
	switch code := binary.BigEndian.Uint32(message[4:]); code {
	case requestSSL, requestGSS: // and perhaps another one follows
	default:
		s.began, s.foreign = true, code != protocolThree
	}
	return 0, nil, !s.foreign
}
