//go:build unix

package socket

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// pair is both ends of a TCP connection; the first is wrapped.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	conn, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { conn.Close(); peer.Close() })
	return New(conn), peer
}

func TestWhatIsReadAtOnceIsHandedOutInPiecesOfAnySizeAndNothingIsKept(t *testing.T) {
	sent := make([]byte, 5*readBytes)
	for i := range sent {
		sent[i] = byte(i / 7)
	}
	for name, next := range map[string]func(size int) int{
		"small":          func(size int) int { return size },
		"small or large": func(size int) int { return readBytes + 100 - size%readBytes },
	} {
		tr, peer := pair(t)
		go func() {
			_, _ = peer.Write(sent)
			peer.Close()
		}()
		var got []byte
		var err error
		for size := 100; err == nil; size = next(size) {
			p := make([]byte, size)
			var n int
			n, err = tr.Read(p)
			got = append(got, p[:n]...)
		}
		if err != io.EOF || !bytes.Equal(got, sent) {
			t.Errorf("%s pieces: got %d bytes, %v; want the %d that were sent, in order", name, len(got), err, len(sent))
		}
		if tr.eager.buffered() {
			t.Errorf("%s pieces: a buffer is kept although everything was read", name)
		}
	}
}

func TestAReadThatWaitsHoldsNoBufferAndEndsAtItsDeadline(t *testing.T) {
	tr, _ := pair(t)
	must(t, tr.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	_, err := tr.Read(make([]byte, 100))
	if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	if tr.eager.buf != nil {
		t.Error("a buffer is held")
	}
}

func TestAWriteThatWouldWaitTakesWhatThereIsRoomFor(t *testing.T) {
	tr, peer := pair(t)
	big := make([]byte, 1<<20)
	var taken int
	for {
		n := tr.eager.TryWrite(big) // returns although the peer does not read
		taken += n
		if n < len(big) {
			break
		}
	}
	got := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, peer)
		got <- n
	}()
	must(t, tr.Conn.Close())
	if n := <-got; n != int64(taken) {
		t.Errorf("the peer got %d bytes, want the %d that were taken", n, taken)
	}
	if n := tr.eager.TryWrite(big); n != 0 {
		t.Errorf("a closed socket took %d bytes", n)
	}
}

// What begins like a ping and is none, or not all of one, is gorilla's to judge.
func TestOnlyWholeControlFramesAreTakenWithoutGorilla(t *testing.T) {
	ping := frame(fin|opPing, strings.Repeat("p", 125))
	for _, c := range []struct {
		name string
		sent []byte
		kind int
	}{
		{"a ping", ping, opPing},
		{"a pong of nothing", frame(fin|opPong, ""), opPong},
		{"a pong, and a message", slices.Concat(frame(fin|opPong, "x"), text("[]")), opPong},
		{"half a ping", ping[:60], 0},
		{"a message", text("[]"), 0},
		{"a close frame", closing(1000, ""), 0},
		{"a ping in pieces", frame(opPing, "x"), 0},
		{"a ping with a reserved bit", frame(fin|rsv1|opPing, "x"), 0},
		{"a ping without a mask", append([]byte{fin | opPing, 4}, "abcdefgh"...), 0},
		{"a ping that is too long", frame(fin|opPing, strings.Repeat("p", 126)), 0},
	} {
		tr, peer := pair(t)
		_, err := peer.Write(c.sent)
		must(t, err)
		if !tr.Await() {
			t.Fatal("no bytes")
		}
		kind, payload, ok := tr.Control()
		if ok != (c.kind != 0) || kind != c.kind || c.kind == opPing && string(payload) != strings.Repeat("p", 125) {
			t.Errorf("%s: %d %q %v", c.name, kind, payload, ok)
		}
		if n, whole := tr.frames.whole(); ok && (n != 1 || !whole) || !ok && n != 0 {
			t.Errorf("%s: %d frames are whole: %v", c.name, n, whole)
		}
		if left := len(tr.eager.peek()); !ok && left != len(c.sent) {
			t.Errorf("%s: %d of %d bytes are left to gorilla", c.name, left, len(c.sent))
		}
	}
}

// TestConnectionsTakePingsAndPongsBesideEachOther: the buffer of one is at once that of another,
// which the race detector sees.
func TestConnectionsTakePingsAndPongsBesideEachOther(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, opcode := range []int{websocket.PingMessage, websocket.PongMessage, websocket.PingMessage} {
		tr, peer := pair(t)
		four := frame(byte(finBit|opcode), "four")
		all.Go(func() {
			for range 500 {
				_, err := peer.Write(four)
				if err != nil || !tr.Await() {
					t.Error("nothing came:", err)
					return
				}
				kind, payload, ok := tr.Control()
				if !ok || kind != opcode || string(payload) != "four" {
					t.Errorf("control() = %d, %q, %v; want opcode %d with %q", kind, payload, ok, opcode, "four")
					return
				}
			}
		})
	}
}
