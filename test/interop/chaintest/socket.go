package chaintest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/gorilla/websocket"
)

// maxInFlight bounds the messages of one WebSocket that wait for their answer; beyond it
// the connection is closed.
const maxInFlight = 4096

// maxWithheld bounds what a lagging node keeps of one WebSocket's notifications; the
// oldest are dropped.
const maxWithheld = 1024

// socket is one client's WebSocket and its twin to the node. Each side is read by a
// goroutine of its own, which hands on what nothing delays by itself, so that the order is
// kept: calls reach the node in theirs, and an answer is written before what the node said
// after it.
type socket struct {
	p            *Proxy
	client, node *websocket.Conn

	writing sync.Mutex // held while a message is written to the client
	sending sync.Mutex // held while one is written to the node

	mu      sync.Mutex // guards what follows
	nextID  uint64
	pending map[uint64]*flight // by each id it was forwarded with

	notifying sync.Mutex // held while notifications are handed on; taken before the others
	withheld  [][]byte
}

// flight is an exchange that the node has not answered yet.
type flight struct {
	ex  *exchange
	ids []uint64
}

// serveSocket opens the twin first: a node that is away is told before the upgrade.
func (p *Proxy) serveSocket(w http.ResponseWriter, r *http.Request) {
	if rule := p.match(Upgrade, nil); rule != nil && !p.meetUpgrade(w, r, rule) {
		return
	}
	node, resp, err := websocket.DefaultDialer.DialContext(p.ctx, p.target.WS(), nil)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer node.Close()
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	client, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has been told
	}
	defer client.Close()
	s := &socket{p: p, client: client, node: node, pending: make(map[uint64]*flight)}
	p.mu.Lock()
	p.sockets[s] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.sockets, s)
		p.mu.Unlock()
	}()
	s.run()
}

// meetUpgrade reports whether the upgrade goes on.
func (p *Proxy) meetUpgrade(w http.ResponseWriter, r *http.Request, rule *Rule) bool {
	ex := &exchange{p: p, jobs: []*job{{method: Upgrade, rule: rule}}}
	if !ex.wait(p.ctx) {
		panic(http.ErrAbortHandler)
	}
	if rule.fault.whole == nil {
		return true
	}
	rule.meet()
	p.writeHTTP(w, r, rule.fault.whole)
	return false
}

// run returns when either side or the proxy ends, and all that it started has.
func (s *socket) run() {
	var wg sync.WaitGroup
	ended := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(ended)
		s.client.Close()
		s.node.Close()
	})
	wg.Go(func() {
		defer end()
		for {
			_, message, err := s.client.ReadMessage()
			if err != nil || !s.fromClient(message) {
				return
			}
		}
	})
	wg.Go(func() {
		defer end()
		for {
			_, message, err := s.node.ReadMessage()
			if err != nil || !s.fromNode(message) {
				return
			}
		}
	})
	select {
	case <-ended:
	case <-s.p.ctx.Done():
		end()
	}
	wg.Wait()
}

// fromClient reports whether the connection goes on.
func (s *socket) fromClient(message []byte) bool {
	ex, err := s.p.parse(message)
	if err != nil {
		return s.write(refusal(err))
	}
	if !ex.delayed() {
		return s.forward(ex)
	}
	s.p.wg.Go(func() {
		if ex.wait(s.p.ctx) && !s.forward(ex) {
			s.client.Close()
		}
	})
	return true
}

// forward sends an exchange to the node, or answers it without.
func (s *socket) forward(ex *exchange) bool {
	if out, local := ex.local(); local {
		return s.write(out)
	}
	frame, err := s.register(ex)
	if err != nil {
		return false
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.node.WriteMessage(websocket.TextMessage, frame) == nil
}

// register writes down what the node's answer will belong to.
func (s *socket) register(ex *exchange) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= maxInFlight {
		return nil, errors.New("too many messages wait for their answer")
	}
	f := &flight{ex: ex}
	frame, err := ex.frame(func() uint64 {
		s.nextID++
		f.ids = append(f.ids, s.nextID)
		return s.nextID
	})
	for _, id := range f.ids {
		s.pending[id] = f
	}
	return frame, err
}

// fromNode reports whether the connection goes on.
func (s *socket) fromNode(message []byte) bool {
	answers, err := readAnswers(message)
	if err != nil {
		return false
	}
	f := s.landed(answers)
	if f == nil {
		return s.notify(message)
	}
	return s.write(f.ex.after(answers))
}

// landed takes the exchange that is answered off the list; nil for none.
func (s *socket) landed(answers map[uint64]*answer) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range answers {
		if f := s.pending[id]; f != nil {
			for _, id := range f.ids {
				delete(s.pending, id)
			}
			return f
		}
	}
	return nil
}

// notify hands on what nobody asked for: what a subscription brings, or a refusal.
func (s *socket) notify(message []byte) bool {
	if !isNotification(message) {
		return s.write(&outcome{kind: raw, body: message})
	}
	s.notifying.Lock()
	defer s.notifying.Unlock()
	muted, lagging := s.p.notified()
	switch {
	case muted:
		return true
	case lagging && isOfABlock(message):
		s.withheld = append(s.withheld, message)
		s.withheld = s.withheld[max(0, len(s.withheld)-maxWithheld):]
		return true
	case !lagging && !s.catchUpLocked():
		return false
	}
	return s.write(&outcome{kind: raw, body: message})
}

// catchUp writes what was withheld.
func (s *socket) catchUp() {
	s.notifying.Lock()
	defer s.notifying.Unlock()
	if !s.catchUpLocked() {
		s.client.Close()
	}
}

func (s *socket) catchUpLocked() bool {
	withheld := s.withheld
	s.withheld = nil
	for _, message := range withheld {
		if !s.write(&outcome{kind: raw, body: message}) {
			return false
		}
	}
	return true
}

func isNotification(message []byte) bool {
	var n struct{ Method string }
	return json.Unmarshal(message, &n) == nil && n.Method != ""
}

// isOfABlock reports whether a notification is a head or a log.
func isOfABlock(message []byte) bool {
	var n struct {
		Params struct {
			Result struct{ ParentHash, BlockHash *string }
		}
	}
	return json.Unmarshal(message, &n) == nil && (n.Params.Result.ParentHash != nil || n.Params.Result.BlockHash != nil)
}

// write gives the client its outcome and reports whether the connection goes on; nil is
// nothing.
func (s *socket) write(out *outcome) bool {
	if out == nil {
		return true
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	switch out.kind {
	case raw:
		return s.client.WriteMessage(websocket.TextMessage, out.body) == nil
	case stream:
		w, err := s.client.NextWriter(websocket.TextMessage)
		return err == nil && out.writeTo(w) && w.Close() == nil
	case silent:
		return true
	}
	return false
}
