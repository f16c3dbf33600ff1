package socket

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/tlsfiles"
	"noncegate/test/lab/tlstest"
)

// stuffed is a connection that takes nothing unless the peer reads it at once, as a
// socket whose buffer is full.
type stuffed struct{ net.Conn }

func (stuffed) CloseWrite() error { return nil }

// Whoever reads can tell the end of TLS from a connection that was cut, which is io.ErrUnexpectedEOF.
// Where a client does not read, the end is not waited for.
func TestTheEndIsSaidUnderTLSWhereAClientReads(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { closeTLS(t, reads) })
	}
}

func closeTLS(t *testing.T, reads bool) {
	ca := tlstest.New(t, "ca")
	cert, key := ca.Write(tlstest.Leaf{})
	files, err := tlsfiles.Open(tlsfiles.Config{Cert: cert, Key: key}, slog.New(slog.DiscardHandler))
	must(t, err)
	defer files.Stop()
	mine, peer := net.Pipe()
	defer mine.Close()
	defer peer.Close()
	must(t, peer.SetReadDeadline(time.Now().Add(time.Minute)))
	config := ca.Client()
	config.ServerName = "localhost"
	conn, client := tls.Server(stuffed{mine}, files.TLS()), tls.Client(peer, config)
	read := make(chan error, 2)
	go func() {
		_, err := client.Read(make([]byte, 1))
		read <- err
		if reads {
			_, err = client.Read(make([]byte, 1))
			read <- err
		}
	}()
	_, err = conn.Write([]byte("x"))
	must(t, errors.Join(err, <-read))

	began := time.Now()
	_ = socket{&Conn{Conn: conn}}.Close()
	if took := time.Since(began); took > 2*time.Second { // of the bubble; crypto/tls alone waits for five
		t.Errorf("Close took %v", took)
	}
	if reads {
		if err := <-read; err != io.EOF {
			t.Errorf("the client reads %v", err)
		}
	}
}
