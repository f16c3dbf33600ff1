package writer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/backpressure"
	"noncegate/encodepool"
)

// pipeQueue is a queue on a pipe: a write blocks until the test reads it.
func pipeQueue(cfg *Config) (*Queue, net.Conn) {
	server, client := net.Pipe()
	return New(server, newGoPool(1000), cfg), client
}

// fill pushes replies of 100 bytes until the client is above its high mark. The
// first is being written, and stuck, while the others are encoded.
func fill(t testing.TB, q *Queue) {
	t.Helper()
	for range 12 {
		push(t, q, sized(100))
		q.Wake()
		synctest.Wait()
	}
}

func TestAClientThatStopsReadingIsPausedDroppedAndKicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var drops []string
		kicks := make(chan backpressure.KickReason, 10)
		cfg.OnDrop = func(r backpressure.DropReason) { drops = append(drops, string(r)) }
		var q *Queue
		cfg.OnKick = func(r backpressure.KickReason) {
			time.Sleep(time.Second) // the bubble's clock: all else comes to rest meanwhile
			select {
			case <-q.Done():
				t.Error("done before the kick was told")
			default:
			}
			kicks <- r
		}
		server, client := net.Pipe()
		q = New(server, newGoPool(1000), cfg)
		defer client.Close()
		if !q.WaitReadable() || q.Paused() {
			t.Fatal("paused before anything was sent")
		}
		fill(t, q)
		if !q.Paused() {
			t.Fatal("reads go on above the high mark")
		}
		readable := make(chan bool)
		go func() { readable <- q.WaitReadable() }()
		for range 1000 {
			if q.Notify(sized(100), 100) {
				t.Fatal("a notification was taken above the high mark")
			}
		}
		if len(drops) != 1000 || drops[0] != "slow" {
			t.Errorf("%d drops", len(drops))
		}
		time.Sleep(cfg.Marks.SlowAfter - time.Millisecond) // the bubble's clock
		synctest.Wait()
		if len(kicks) != 0 {
			t.Fatal("kicked too early")
		}
		time.Sleep(time.Millisecond)
		if <-readable {
			t.Error("a closed queue said its connection may be read")
		}
		<-q.Done()
		if len(kicks) != 1 || <-kicks != backpressure.KickSlow {
			t.Errorf("not kicked once for being slow")
		}
		if kick, ok := errors.AsType[*KickError](q.Cause()); !ok || kick.Reason != backpressure.KickSlow {
			t.Errorf("cause %v", q.Cause())
		}
		checkEmpty(t, q)
	})
}

func TestReadsResumeBelowTheLowMarkAndTheAlarmIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, client := pipeQueue(testConfig())
		defer client.Close()
		fill(t, q)
		readable := make(chan bool)
		go func() { readable <- q.WaitReadable() }()
		synctest.Wait()
		for range 12 {
			if _, err := readFrame(client); err != nil {
				t.Fatal(err)
			}
		}
		if !<-readable {
			t.Error("closed in place of resumed")
		}
		time.Sleep(time.Hour) // nothing may kick a client that is well
		if err := q.Cause(); err != nil || q.Paused() {
			t.Errorf("cause %v, paused %v", err, q.Paused())
		}
		checkEmpty(t, q)
		end(t, q)
	})
}

func TestPolicyOffLeavesTheHardCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marks.Off = true
		var kicked backpressure.KickReason
		cfg.OnKick = func(r backpressure.KickReason) { kicked = r }
		q, client := pipeQueue(cfg)
		defer client.Close()
		taken := 0
		for q.Notify(sized(100), 100) {
			taken++
			synctest.Wait()
		}
		<-q.Done()
		if taken != 39 || kicked != backpressure.KickHardCap { // 102 bytes each, with the header
			t.Errorf("took %d messages of 100 bytes under a cap of 4000, then kicked with %q", taken, kicked)
		}
		checkEmpty(t, q)
	})
}

func TestAPoolThatIsBehindCostsNotificationsNotTheClient(t *testing.T) {
	cfg, sock, pool := testConfig(), newMemorySocket(), newManualPool(1000)
	cfg.Marks.Off = true
	q := New(sock, pool, cfg)
	taken := 0
	for q.Notify(sized(100), 100) {
		taken++
	}
	if taken != 36 || q.Cause() != nil {
		t.Errorf("took %d messages of 100 bytes under a cap of 4000; cause %v", taken, q.Cause())
	}
	q.Kill(net.ErrClosed)
	pool.runAll()
	<-q.Done()
	checkEmpty(t, q)
}

func TestAnOldMessageKicksJustBeforeTheNextWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marks.MaxAge = time.Second
		q, client := pipeQueue(cfg)
		defer client.Close()
		push(t, q, text("being written"))
		q.Wake()
		synctest.Wait()
		push(t, q, text("waits behind it"))
		q.Wake()
		time.Sleep(2 * time.Second)
		if f, err := readFrame(client); err != nil || string(f.payload) != "being written" {
			t.Fatal(f, err)
		}
		f, err := readFrame(client)
		if err != nil || f.op != encodepool.OpClose || binary.BigEndian.Uint16(f.payload) != 4001 || string(f.payload[2:]) != "slow_consumer" {
			t.Errorf("got %v, %v, want a farewell at a frame's boundary", f, err)
		}
		<-q.Done()
		if kick, ok := errors.AsType[*KickError](q.Cause()); !ok || kick.Reason != backpressure.KickTooOld {
			t.Errorf("cause %v", q.Cause())
		}
		checkEmpty(t, q)
	})
}

func TestAgeIsThatOfTheOldestUnwrittenMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Marks.MaxAge = time.Second
		q, client := pipeQueue(cfg)
		defer client.Close()
		send := func(s string) {
			push(t, q, text("%s", s))
			q.Wake()
			synctest.Wait()
		}
		send("read at once")
		if _, err := readFrame(client); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // idle time is nobody's age
		send("stuck")
		time.Sleep(600 * time.Millisecond)
		send("behind it")
		if err := q.Cause(); err != nil {
			t.Fatalf("ended too early: %v", err)
		}
		time.Sleep(600 * time.Millisecond)
		send("finds the first too old")
		<-q.Done()
		if kick, ok := errors.AsType[*KickError](q.Cause()); !ok || kick.Reason != backpressure.KickTooOld {
			t.Errorf("cause %v", q.Cause())
		}
	})
}

func TestAWriteThatTakesNothingIsAKick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		var kicked backpressure.KickReason
		cfg.OnKick = func(r backpressure.KickReason) { kicked = r }
		q, client := pipeQueue(cfg)
		defer client.Close()
		start := time.Now()
		push(t, q, text("stuck"))
		q.Wake()
		<-q.Done()
		if took := time.Since(start); took != cfg.WriteTimeout || kicked != backpressure.KickWriteTimeout {
			t.Errorf("ended after %v with %q", took, kicked)
		}
		checkEmpty(t, q)
	})
}

func TestABrokenSocketEndsTheQueueWithItsError(t *testing.T) {
	q, client := pipeQueue(testConfig())
	client.Close()
	push(t, q, text("nobody reads this"))
	q.Wake()
	<-q.Done()
	if cause := q.Cause(); cause == nil || !strings.HasPrefix(cause.Error(), "write: ") {
		t.Errorf("cause %v", cause)
	}
	checkEmpty(t, q)
}

func TestCloseAfterFlushWritesEverythingThenWaitsForThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, client := pipeQueue(testConfig())
		defer client.Close()
		push(t, q, text("one"))
		push(t, q, text("two")) // no Wake: the close does it
		q.Ping([]byte("dropped, for it would come late"))
		synctest.Wait()
		if f, err := readFrame(client); err != nil || f.op != encodepool.OpPing {
			t.Fatal(f, err)
		}
		q.CloseAfterFlush(1012, "restart"+strings.Repeat("!", 200))
		q.CloseAfterFlush(1000, "the first wins")
		q.Pong(nil)
		late := text("late")
		if q.Notify(late, 4) || q.Reserve(1) != RefusedConnection || late.released.Load() != 1 {
			t.Error("something was accepted after the close")
		}
		for _, want := range []string{"1:one", "1:two"} {
			if f, err := readFrame(client); err != nil || f.String() != want {
				t.Fatalf("got %v, %v, want %s", f, err, want)
			}
		}
		f, err := readFrame(client)
		if err != nil || f.op != encodepool.OpClose || binary.BigEndian.Uint16(f.payload) != 1012 || len(f.payload) != 125 {
			t.Fatalf("got %v, %v, want close 1012", f, err)
		}
		synctest.Wait()
		select {
		case <-q.Done():
			t.Fatal("closed before the peer answered")
		default:
		}
		if !q.WaitReadable() {
			t.Error("the read loop cannot see the peer's close frame")
		}
		q.PeerClosed()
		<-q.Done()
		if !errors.Is(q.Cause(), ErrClosed) {
			t.Errorf("cause %v", q.Cause())
		}
		checkEmpty(t, q)
	})
}

func TestAnOrderlyCloseIsBounded(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig()
			q, client := pipeQueue(cfg)
			defer client.Close()
			fill(t, q) // above the high mark: the slow alarm is set, too
			start := time.Now()
			q.CloseAfterFlush(1001, "going away")
			for reads {
				if f, err := readFrame(client); err != nil || f.op == encodepool.OpClose {
					break
				}
			}
			<-q.Done()
			if took := time.Since(start); took != cfg.CloseTimeout || !errors.Is(q.Cause(), errCloseTimeout) {
				t.Errorf("peer reads: %v: ended after %v with %v", reads, took, q.Cause())
			}
			checkEmpty(t, q)
		})
	}
}

func TestTheNewestPongReplacesOneThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, client := pipeQueue(testConfig())
		defer client.Close()
		push(t, q, text("blocks the socket"))
		q.Wake()
		synctest.Wait()
		for i := range 100 {
			q.Pong(fmt.Append(nil, i))
			q.Ping(fmt.Append(nil, i))
		}
		push(t, q, text("reply"))
		q.Wake()
		synctest.Wait()
		for _, want := range []string{"1:blocks the socket", "1:reply", "9:99", "a:99"} {
			if f, err := readFrame(client); err != nil || f.String() != want {
				t.Fatalf("got %v, %v, want %s", f, err, want)
			}
		}
		end(t, q)
		checkEmpty(t, q)
	})
}

func TestKillReleasesEverythingOnceAndInterruptsTheWrite(t *testing.T) {
	q, client := pipeQueue(testConfig())
	defer client.Close()
	if q.Reserve(10) != Granted {
		t.Fatal("refused")
	}
	var all []*message
	for i := range 8 {
		m := sized(100)
		all = append(all, m)
		push(t, q, m)
		if i%3 == 0 {
			q.Wake() // some are being written, some encoded, some wait
		}
	}
	q.Kill(errors.New("enough"))
	q.Kill(errors.New("the first stays"))
	<-q.Done()
	late := text("committed meanwhile")
	all = append(all, late)
	q.Push(late, 10)
	q.Wake()
	for i, m := range all {
		if m.released.Load() != 1 {
			t.Errorf("message %d was released %d times", i, m.released.Load())
		}
	}
	if q.Cause().Error() != "enough" {
		t.Errorf("cause %v", q.Cause())
	}
	if q.WaitReadable() {
		t.Error("a killed connection may be read")
	}
	checkEmpty(t, q)
}
