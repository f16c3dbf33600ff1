package ws

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// socketAs is a WebSocket of a principal on which a test writes bytes.
func (g *gateway) socketAs(name string) *raw {
	g.Helper()
	conn, err := net.Dial("tcp", g.address)
	must(g.TB, err)
	g.Cleanup(func() { conn.Close() })
	r := &raw{TB: g.TB, Conn: conn, in: bufio.NewReader(conn)}
	r.upgrade("Authorization: Bearer " + name + "\r\n")
	return r
}

// padded is a request of so many bytes.
func padded(id string, bytes int) []byte {
	q := `{"jsonrpc":"2.0","id":"` + id + `","method":"nonce_status","params":["s"]}`
	return text(q + strings.Repeat(" ", bytes-len(q)))
}

// awaitReceiving waits until some messages of so many bytes are received, of each of which the
// gateway may count a few bytes more or less, and so many more wait for that.
func (g *gateway) awaitReceiving(messages, bytes int64, waits int) {
	g.Helper()
	s := g.srv.receiving.shares
	wait.Until(g.TB, fmt.Sprintf("%d messages and %d waits", messages, waits), func() bool {
		taken := s.Taken()
		return taken >= messages*(bytes-buffered) && taken <= messages*(bytes+buffered) && s.Waits() == waits
	})
}

func receiveBytes(s *setup) { s.ws.MaxMessageBytes, s.ws.MaxReceiveBytes = 64<<10, 512<<10 }

func TestHalfMessagesOfOnePrincipalLeaveRoomForOthers(t *testing.T) {
	g := startGateway(t, receiveBytes, letIn("hostile", "worker"))
	whole := padded("1", 60<<10)
	const most = 6 // of 60 KiB, in three quarters of 512
	var half []*raw
	for range 40 {
		r := g.socketAs("hostile")
		r.write(whole[:30<<10])
		half = append(half, r)
	}
	g.awaitReceiving(most, 60<<10, 40-most)
	worker := g.socketAs("worker")
	for range 10 {
		worker.write(whole)
		worker.want(opText, `"id":"1"`)
	}
	g.awaitReceiving(most, 60<<10, 40-most)
	for i, r := range half { // all are served in the end
		if i%2 == 0 {
			must(t, r.Close())
			continue
		}
		r.write(whole[30<<10:])
	}
	for i, r := range half {
		if i%2 == 1 {
			r.want(opText, `"id":"1"`)
		}
	}
	g.awaitReceiving(0, 0, 0)
}

// A message whose length is not known by its first frame counts as the longest there may be,
// whatever comes between its frames.
func TestAMessageInFramesCountsAsTheLongest(t *testing.T) {
	g := startGateway(t, receiveBytes, letIn("ada"))
	long := strings.Repeat(" ", freeBytes)
	for name, first := range map[string][]byte{
		"two frames":          slices.Concat(frame(opText, "["), frame(opContinuation, long)),
		"a ping between them": slices.Concat(frame(opText, "["), frame(fin|opPing, "x"), frame(opContinuation, long)),
		"an empty frame":      slices.Concat(frame(opText, ""), frame(opContinuation, long)),
		"a long frame, begun": frame(fin|opText, strings.Repeat(" ", 64<<10))[:freeBytes+100],
	} {
		r := g.socketAs("ada")
		r.write(first)
		g.awaitReceiving(1, 64<<10, 0)
		must(t, r.Close())
		wait.Until(t, "the end of "+name, func() bool { return g.srv.receiving.shares.Taken() == 0 })
	}
}

// Half a short message, or less of a long one, costs what the process has for a connection anyway.
func TestAShortMessageIsNotCounted(t *testing.T) {
	g := startGateway(t, receiveBytes, letIn("ada"))
	r := g.socketAs("ada")
	r.write(frame(opText, `{"jsonrpc":"2.0","id":"1",`), frame(opContinuation, strings.Repeat(" ", 7000)))
	r.write(frame(fin|opPing, "x"))
	r.want(opPong, "x") // all that came was taken
	if n := g.srv.receiving.shares.Taken(); n != 0 {
		t.Errorf("%d bytes are counted", n)
	}
	r.write(frame(fin|opContinuation, `"method":"nonce_status","params":["s"]}`))
	r.want(opText, `"id":"1"`)
}

func TestAMessageThatWaitsUnreadTooLongEndsItsConnection(t *testing.T) {
	g := startGateway(t, receiveBytes, letIn("hostile"), func(s *setup) { s.ws.MessageTimeout = 500 * time.Millisecond })
	whole := padded("1", 60<<10)
	var all []*raw
	for range 12 {
		r := g.socketAs("hostile")
		r.write(whole[:30<<10])
		all = append(all, r)
	}
	for _, r := range all {
		if got := r.outcome(closedBy(wire.ClosePolicy)); got != closedBy(wire.ClosePolicy) && got != gone {
			t.Errorf("got %v", got)
		}
		must(t, r.Close())
	}
	g.awaitReceiving(0, 0, 0)
}

func TestReceiveTakesLittleMoreMemoryThanCame(t *testing.T) {
	const size = 2 << 20
	claims := 0
	read := func(have int, size int64) ([]byte, error) {
		got, _, err := receive(nil, bytes.NewReader(make([]byte, have)), size, func() (*receipt, error) { claims++; return new(receipt), nil })
		return got, err
	}
	for _, have := range []int{0, 1, freeBytes - 1, freeBytes, freeBytes + 1, 300 << 10, size} {
		claims = 0
		got, err := read(have, size)
		if err != nil || len(got) != have || cap(got) > max(4*have, 512) || cap(got) > size+512 || (claims > 0) != (have > freeBytes-1) {
			t.Errorf("%d bytes: %d in %d, claimed %d times, %v", have, len(got), cap(got), claims, err)
		}
	}
	if _, err := read(300<<10, 200<<10); err == nil {
		t.Error("more than was claimed was taken")
	}
}
