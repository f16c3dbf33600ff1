package interop

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
	final          = 0x80 // or'ed to the opcode of the last frame of a message
)

// rawClient speaks RFC 6455 on a bare connection, with no library for it.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// dialRaw connects and does the opening handshake of section 4.1. It offers
// compression, as browsers do.
func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	key := base64.StdEncoding.EncodeToString(random[:])
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: %s\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", addr, key)
	c := &rawClient{t, conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	accept := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(accept[:]) {
		t.Fatalf("handshake: %s %v", resp.Status, resp.Header)
	}
	if ext := resp.Header.Get("Sec-WebSocket-Extensions"); ext != "" {
		t.Fatalf("the gateway took the extension %s", ext)
	}
	return c
}

// send writes one frame of less than 64 KiB, masked as a client's must be.
func (c *rawClient) send(first byte, payload string) {
	c.t.Helper()
	const masked, len16 = 0x80, 126
	frame := []byte{first}
	if len(payload) < len16 {
		frame = append(frame, masked|byte(len(payload)))
	} else {
		frame = binary.BigEndian.AppendUint16(append(frame, masked|len16), uint16(len(payload)))
	}
	var mask [4]byte
	_, _ = rand.Read(mask[:]) // never fails
	frame = append(frame, mask[:]...)
	for i := range len(payload) {
		frame = append(frame, payload[i]^mask[i%4])
	}
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads one frame, which must be whole and not masked.
func (c *rawClient) receive() (first byte, payload string) {
	c.t.Helper()
	var head [2]byte
	var long [2]byte
	_, err := io.ReadFull(c.r, head[:])
	n := int(head[1])
	if err == nil && n == 126 {
		_, err = io.ReadFull(c.r, long[:])
		n = int(binary.BigEndian.Uint16(long[:]))
	}
	data := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(c.r, data)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return head[0], string(data)
}

// want receives one frame and compares it.
func (c *rawClient) want(first byte, prefix string) {
	c.t.Helper()
	if got, payload := c.receive(); got != first || !bytes.HasPrefix([]byte(payload), []byte(prefix)) {
		c.t.Errorf("got frame %#x %q, want %#x %q", got, payload, first, prefix)
	}
}

func TestAClientWrittenFromTheRFCGetsNonces(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, start(t).addr)
	c.send(final|opText, `{"jsonrpc":"2.0","id":1,"method":"nonce_allocate","params":["`+signer+`"]}`)
	c.want(final|opText, `{"jsonrpc":"2.0","id":1,"result":{"signer":"`+signer+`","nonce":0,"attempt":1,`)

	// A message in two frames, with a control frame between them.
	c.send(opText, `{"jsonrpc":"2.0","id":"two","method":"nonce_`)
	c.send(final|opPing, "are you there")
	c.want(final|opPong, "are you there") // before the rest: a pong may overtake a reply, or a reply it
	c.send(final|opContinuation, `allocate","params":{"signer":"`+signer+`","count":3}}`)
	c.want(final|opText, `{"jsonrpc":"2.0","id":"two","result":{"signer":"`+signer+`","nonce":1,"attempt":1,`)

	normal := string(binary.BigEndian.AppendUint16(nil, 1000))
	c.send(final|opClose, normal+"done")
	c.want(final|opClose, normal)
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after the closing handshake: %v, want the end of the connection", err)
	}
}

func TestAFrameThatIsNotMaskedEndsTheConnection(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, start(t).addr)
	if _, err := c.conn.Write([]byte{final | opText, 2, '{', '}'}); err != nil {
		t.Fatal(err)
	}
	c.want(final|opClose, string(binary.BigEndian.AppendUint16(nil, 1002)))
}
