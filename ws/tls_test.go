package ws

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/tlsfiles"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/tlstest"
	"noncegate/wire"
)

// counted is a listener that counts the writes of its connections.
type counted struct {
	net.Listener
	writes *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// CloseWrite and SetWriteBuffer are what the gateway asks of a TCP connection.
func (c countedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
func (c countedConn) SetWriteBuffer(bytes int) error {
	return c.Conn.(*net.TCPConn).SetWriteBuffer(bytes)
}

// certified is what a server and its clients need for TLS.
func certified(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	files, err := tlsfiles.Open(tlsfiles.Config{Cert: cert, Key: key}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(files.Stop)
	return files.TLS(), ca.Client()
}

// dialTLS serves the gateway over TLS as well, and returns a client, and what counts the
// writes beneath.
func (g *gateway) dialTLS() (c *client, writes *atomic.Int64) {
	g.Helper()
	writes = new(atomic.Int64)
	server, config := certified(g.TB)
	address, stop := inprocess.ServeOver(g.TB, &http.Server{Handler: g.srv}, func(l net.Listener) net.Listener {
		return tls.NewListener(counted{l, writes}, server)
	})
	g.Cleanup(stop)
	conn, _, err := (&websocket.Dialer{TLSClientConfig: config}).DialContext(g.Context(), "wss://"+address+"/ws", nil)
	must(g.TB, err)
	g.Cleanup(func() { _ = conn.Close() })
	c = &client{TB: g.TB, conn: conn}
	c.settle()
	return c, writes
}

func TestRepliesThatAreReadyTogetherLeaveInOneWriteUnderTLSToo(t *testing.T) {
	g := startGateway(t)
	c, writes := g.dialTLS()
	waiting, release := g.holdWrites()
	const n = 200
	before := writes.Load()
	for i := range n {
		c.request(fmt.Sprint(i), wire.MethodAllocate, `["a"]`)
	}
	<-waiting
	g.awaitInflight(n)
	release()
	for range n {
		if r := c.reply(); r["error"] != nil {
			t.Fatal(r)
		}
	}
	// The first request was a batch of its own, the others are one. Together they
	// are a few full records.
	if got := writes.Load() - before; got > 5 {
		t.Errorf("%d replies took %d writes", n, got)
	}
}

func TestTheEndOfAConnectionIsSaidUnderTLSToo(t *testing.T) {
	g := startGateway(t)
	c, _ := g.dialTLS()
	must(t, c.conn.WriteMessage(websocket.BinaryMessage, []byte("x")))
	c.wantClosed(websocket.CloseUnsupportedData)
	// gorilla has answered the close frame; what follows is the end of TLS, not of
	// TCP alone, which would be io.ErrUnexpectedEOF.
	if n, err := c.conn.NetConn().Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("behind the close frame: %d bytes, %v", n, err)
	}
}

// stuffed is a connection that takes nothing unless the peer reads it at once, as a
// socket whose buffer is full.
type stuffed struct{ net.Conn }

func (stuffed) CloseWrite() error { return nil }

func TestTheEndIsNotWaitedForWhereAClientDoesNotReadUnderTLS(t *testing.T) {
	synctest.Test(t, closesUnreadTLS)
}

func closesUnreadTLS(t *testing.T) {
	server, config := certified(t)
	mine, peer := net.Pipe()
	defer mine.Close()
	defer peer.Close()
	conn := tls.Server(stuffed{mine}, server)
	read := make(chan error, 1)
	go func() {
		config.ServerName = "localhost"
		_, err := tls.Client(peer, config).Read(make([]byte, 1))
		read <- err
	}()
	_, err := conn.Write([]byte("x"))
	must(t, errors.Join(err, <-read)) // and nobody reads any more

	began := time.Now()
	_ = socket{&transport{Conn: conn}}.Close()
	if took := time.Since(began); took > 2*time.Second { // of the bubble; crypto/tls alone waits for five
		t.Errorf("Close took %v", took)
	}
}
