package writer

import (
	"bytes"
	"testing"
	"time"

	"noncegate/backpressure"
)

func TestRoomOfAReplyGrowsWhileThereIsSome(t *testing.T) {
	cfg := testConfig()
	cfg.Marks = backpressure.Marks{Off: true, High: 1, Max: 4000}
	q, sock, pool := manual(cfg, 100)
	if got := q.Reserve(1000); got != Granted {
		t.Fatalf("refused: %s", got)
	}
	if q.Grow(3500) {
		t.Error("a reply of 4500 bytes has room where 4000 are the most")
	}
	if !q.Grow(2000) {
		t.Fatal("a reply of 3000 bytes has no room where 4000 are the most")
	}
	if got := q.Reserve(1500); got != RefusedConnection {
		t.Errorf("room of what has grown was promised again: %q", got)
	}
	q.Push(sized(3000), 3000)
	q.Wake()
	pool.runAll()
	<-sock.wrote
	end(t, q)
	if q.Grow(1) {
		t.Error("a closed queue has room")
	}
	checkEmpty(t, q)
}

func TestALongWriteHasADeadlineForEachPiece(t *testing.T) {
	const payload = 2*pieceBytes + pieceBytes/2
	cfg := testConfig()
	cfg.Marks, cfg.WriteTimeout = backpressure.Marks{Off: true, High: 1, Max: 1 << 30}, time.Hour
	q, sock, pool := manual(cfg, 100)
	send(t, q, sized(payload))
	pool.runAll()
	for range 3 {
		<-sock.wrote
	}
	end(t, q)
	if sock.deadlines < 3 {
		t.Errorf("%d deadlines for 3 pieces", sock.deadlines)
	}
	if got := frames(t, bytes.Join(sock.all(), nil)); len(got) != 1 || len(got[0].payload) != payload {
		t.Errorf("%d frames, want one of %d bytes", len(got), payload)
	}
	checkEmpty(t, q)
}
