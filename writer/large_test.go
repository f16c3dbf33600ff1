package writer

import (
	"bytes"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// told is a message that notes when it was written or thrown away.
type told struct {
	Message
	written *atomic.Int32
}

func (m told) OnWritten() func() { return func() { m.written.Add(1) } }

func TestWhatALargeAnswerHoldsIsGivenBackWhenItWasWritten(t *testing.T) {
	onPipe(t, testConfig(), func(t *testing.T, q *Queue, client net.Conn) {
		var written atomic.Int32
		sendTold := func() {
			if q.Reserve(100) != Granted {
				t.Fatal("refused")
			}
			q.Push(told{sized(100), &written}, 100)
			q.Wake()
		}
		send(t, q, sized(100))
		sendTold()
		sendTold()
		synctest.Wait()
		if n := written.Load(); n != 0 {
			t.Errorf("%d were told to be written while the client reads nothing", n)
		}
		readFrames(t, client, 3)
		synctest.Wait()
		if n := written.Load(); n != 2 {
			t.Errorf("%d were told to be written, want 2", n)
		}
		send(t, q, sized(100))
		sendTold()
		synctest.Wait()
		q.Kill(errors.New("enough"))
		synctest.Wait()
		if n := written.Load(); n != 3 {
			t.Errorf("%d were told to be over after the end, want 3", n)
		}
	})
}

func TestNotificationsHaveABoundOfTheirOwn(t *testing.T) {
	cfg := testConfig()
	cfg.Marks.Max, cfg.Marks.High, cfg.MaxNotifications = 1<<20, 1<<19, 1000
	onPipe(t, cfg, func(t *testing.T, q *Queue, client net.Conn) {
		taken := 0
		for range 100 {
			if q.Notify(sized(90), 90) {
				taken++
			}
			synctest.Wait()
		}
		if taken != 10 {
			t.Errorf("%d notifications of 100 bytes were taken, want 10 with 1000 bytes", taken)
		}
		send(t, q, sized(100)) // a reply is no notification
		readFrames(t, client, taken+1)
		synctest.Wait()
		if !q.Notify(sized(90), 90) {
			t.Error("none is taken after all were written")
		}
		readFrames(t, client, 1)
		synctest.Wait()
		q.Kill(errors.New("enough"))
		synctest.Wait()
	})
}
