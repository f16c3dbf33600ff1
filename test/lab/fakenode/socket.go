package fakenode

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// writeTimeout bounds a write to a client that does not read.
const writeTimeout = 10 * time.Second

// socket is one connection over WebSocket.
type socket struct {
	n  *Node
	ws *websocket.Conn

	writing sync.Mutex
	subs    map[string]string // the kind of each subscription, by id; guarded by Node.mu
}

func (n *Node) upgrade(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	s := &socket{n: n, ws: ws, subs: map[string]string{}}
	n.locked(func() { n.sockets[s] = true })
	defer func() {
		n.locked(func() { delete(n.sockets, s) })
		ws.Close()
	}()
	for {
		_, data, err := ws.ReadMessage()
		if err != nil {
			return
		}
		if reply := n.answer(data, s); reply != nil {
			s.write(reply)
		}
	}
}

func (s *socket) write(data []byte) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	_ = s.ws.WriteMessage(websocket.TextMessage, data) // the reader sees the end
}

// event tells the subscribers of a kind.
func (s *socket) event(kind string, result any) {
	var ids []string
	s.n.locked(func() {
		for id, k := range s.subs {
			if k == kind {
				ids = append(ids, id)
			}
		}
	})
	for _, id := range ids {
		s.write(encode(map[string]any{
			"jsonrpc": "2.0", "method": "eth_subscription",
			"params": map[string]any{"subscription": id, "result": result},
		}))
	}
}

// subscriptionLocked opens or ends one.
func (n *Node) subscriptionLocked(method string, params []json.RawMessage, s *socket) (any, error) {
	if method == "eth_unsubscribe" {
		_, open := s.subs[text(params, 0)]
		delete(s.subs, text(params, 0))
		return open, nil
	}
	n.nextSub++
	id := "0x" + strconv.FormatInt(int64(n.nextSub), 16)
	s.subs[id] = kindOf(params)
	return id, nil
}

// kindOf is the kind of a subscription, as it was written.
func kindOf(params []json.RawMessage) (kind string) {
	if len(params) > 0 {
		_ = json.Unmarshal(params[0], &kind) // no string: ""
	}
	return kind
}

// Emit tells all subscribers of a kind, such as logs.
func (n *Node) Emit(kind string, result any) {
	for _, s := range n.all() {
		s.event(kind, result)
	}
}

// Write sends bytes as they are over all WebSockets.
func (n *Node) Write(data string) {
	for _, s := range n.all() {
		s.write([]byte(data))
	}
}

// Subscribed returns how many subscriptions of a kind are open.
func (n *Node) Subscribed(kind string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.sockets {
		for _, k := range s.subs {
			if strings.EqualFold(k, kind) {
				count++
			}
		}
	}
	return count
}

// Sockets returns how many WebSockets are open.
func (n *Node) Sockets() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.sockets)
}

// CloseSockets breaks all WebSockets.
func (n *Node) CloseSockets() {
	for _, s := range n.all() {
		s.ws.Close()
	}
}

func (n *Node) all() (all []*socket) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.sockets {
		all = append(all, s)
	}
	return all
}
