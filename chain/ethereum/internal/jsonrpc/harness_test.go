package jsonrpc

import (
	"net/http"
	"testing"

	"github.com/gorilla/websocket"
)

// upgradeAndSleep takes a WebSocket and does not even answer pings, until the other side
// goes.
func upgradeAndSleep(t *testing.T, w http.ResponseWriter, q *http.Request) bool {
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, q, nil)
	if err != nil {
		t.Error(err)
		return true
	}
	defer ws.Close()
	ws.SetPingHandler(func(string) error { return nil })
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return true
		}
	}
}
