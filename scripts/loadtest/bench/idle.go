//go:build unix

package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

const (
	idleDialers = 64               // connections being opened at a time
	idleTimeout = 30 * time.Second // for a handshake, and for an answer
)

// idle opens the load's connections, sends one request on each, leaves them alone
// for a while, and reads what memory the server has come to have for them. It does
// not answer pings meanwhile; see maxIdle.
func idle(while time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		if srv.atStart == 0 {
			return Sample{}, errNoProc
		}
		conns, err := openIdle(ctx, l)
		defer closeAll(conns)
		if err != nil {
			return Sample{}, err
		}
		if err := wait.For(ctx, while); err != nil {
			return Sample{}, err
		}
		now := residentBytes(srv.proc.PID())
		return Sample{
			Acknowledged: int64(len(conns)), Resident: now,
			PerConnection: (now - srv.atStart) / float64(len(conns)),
		}, nil
	}
}

// openIdle returns the connections that were opened, each of which has had an
// answer unless there is an error. Some may be nil then.
func openIdle(ctx context.Context, l traffic.Load) ([]*websocket.Conn, error) {
	conns := make([]*websocket.Conn, l.Connections)
	dialer := websocket.Dialer{
		HandshakeTimeout: idleTimeout, ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10,
		NetDialContext: (&net.Dialer{}).DialContext,
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(idleDialers)
	for i := range conns {
		g.Go(func() (err error) {
			if conns[i], _, err = dialer.DialContext(ctx, l.URLs[0], nil); err != nil {
				return fmt.Errorf("connect to %s: %w", l.URLs[0], err)
			}
			return askOnce(conns[i], l.Signers.Name(i%l.Signers.Count))
		})
	}
	return conns, g.Wait()
}

// askOnce allocates one nonce.
func askOnce(conn *websocket.Conn, signer string) error {
	deadline := time.Now().Add(idleTimeout)
	if err := conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"nonce_allocate","params":{"signer":%q}}`, signer)
	if err := conn.WriteMessage(websocket.TextMessage, []byte(request)); err != nil {
		return fmt.Errorf("ask for a nonce: %w", err)
	}
	_, reply, err := conn.ReadMessage()
	if err != nil {
		return fmt.Errorf("ask for a nonce: %w", err)
	}
	if !bytes.Contains(reply, []byte(`"nonce":`)) {
		return fmt.Errorf("ask for a nonce: %s", reply)
	}
	return nil
}

func closeAll(conns []*websocket.Conn) {
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
}
