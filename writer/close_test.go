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
	"noncegate/test/lab/expect"
)

// pipeQueue is a queue on a pipe: a write blocks until the test reads it.
func pipeQueue(cfg *Config) (*Queue, net.Conn) {
	server, client := net.Pipe()
	return New(server, newGoPool(1000), cfg), client
}

// onPipe runs a test of such a queue in fake time. In the end everything was given back.
func onPipe(t *testing.T, cfg *Config, test func(t *testing.T, q *Queue, client net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q, client := pipeQueue(cfg)
		defer client.Close()
		test(t, q, client)
		checkEmpty(t, q)
	})
}

// readFrames reads so many.
func readFrames(t *testing.T, client net.Conn, n int) {
	t.Helper()
	for range n {
		_, err := readFrame(client)
		expect.Must(t, err)
	}
}

// wantFrames reads these frames, each as its opcode and payload.
func wantFrames(t *testing.T, client net.Conn, want ...string) {
	t.Helper()
	for _, want := range want {
		if f, err := readFrame(client); err != nil || f.String() != want {
			t.Fatalf("got %v, %v, want %s", f, err, want)
		}
	}
}

// fill pushes replies of 100 bytes until the client is above its high mark. The
// first is being written, and stuck, while the others are encoded.
func fill(t testing.TB, q *Queue) {
	t.Helper()
	for range 12 {
		send(t, q, sized(100))
		synctest.Wait()
	}
}

func TestAClientThatStopsReadingIsPausedDroppedAndKicked(t *testing.T) {
	cfg := testConfig()
	onPipe(t, cfg, func(t *testing.T, q *Queue, _ net.Conn) {
		var drops []string
		kicks := make(chan backpressure.KickReason, 10)
		cfg.OnDrop = func(r backpressure.DropReason) { drops = append(drops, string(r)) }
		cfg.OnKick = func(r backpressure.KickReason) {
			time.Sleep(time.Second) // the bubble's clock: all else comes to rest meanwhile
			select {
			case <-q.Done():
				t.Error("done before the kick was told")
			default:
			}
			kicks <- r
		}
		if !q.WaitReadable() || q.Depth().Paused {
			t.Fatal("paused before anything was sent")
		}
		fill(t, q)
		if !q.Depth().Paused {
			t.Fatal("reads go on above the high mark")
		}
		readable := make(chan bool)
		go func() { readable <- q.WaitReadable() }()
		for range 1000 {
			if q.Notify(sized(100), 100) {
				t.Fatal("a notification was taken above the high mark")
			}
		}
		if d := q.Depth(); d.Bytes+d.Promised > cfg.Marks.Max {
			t.Errorf("%+v are held of %d bytes", d, cfg.Marks.Max)
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
		wantKick(t, q, backpressure.KickSlow)
	})
}

func TestReadsResumeBelowTheLowMarkAndTheAlarmIsGone(t *testing.T) {
	onPipe(t, testConfig(), func(t *testing.T, q *Queue, client net.Conn) {
		fill(t, q)
		readable := make(chan bool)
		go func() { readable <- q.WaitReadable() }()
		synctest.Wait()
		readFrames(t, client, 12)
		if !<-readable {
			t.Error("closed instead of resumed")
		}
		time.Sleep(time.Hour) // nothing may kick a client that is well
		if err := q.Cause(); err != nil || q.Depth().Paused {
			t.Errorf("cause %v, paused %v", err, q.Depth().Paused)
		}
		checkEmpty(t, q)
		end(t, q)
	})
}

func TestPolicyOffLeavesTheHardCap(t *testing.T) {
	cfg := testConfig()
	cfg.Marks.Off = true
	onPipe(t, cfg, func(t *testing.T, q *Queue, _ net.Conn) {
		taken := 0
		for q.Notify(sized(100), 100) {
			taken++
			synctest.Wait()
		}
		<-q.Done()
		if taken != 39 { // 102 bytes each, with the header
			t.Errorf("took %d messages of 100 bytes under a cap of 4000", taken)
		}
		wantKick(t, q, backpressure.KickHardCap)
	})
}

func TestAPoolThatIsBehindCostsNotificationsNotTheClient(t *testing.T) {
	cfg := testConfig()
	cfg.Marks.Off = true
	q, _, pool := manual(cfg, 1000)
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
	cfg := testConfig()
	cfg.Marks.MaxAge = time.Second
	onPipe(t, cfg, func(t *testing.T, q *Queue, client net.Conn) {
		send(t, q, text("being written"))
		synctest.Wait()
		send(t, q, text("waits behind it"))
		time.Sleep(2 * time.Second)
		wantFrames(t, client, "1:being written")
		f, err := readFrame(client)
		if err != nil || f.op != encodepool.OpClose || binary.BigEndian.Uint16(f.payload) != 4001 || string(f.payload[2:]) != "slow_consumer" {
			t.Errorf("got %v, %v, want a farewell at a frame's boundary", f, err)
		}
		<-q.Done()
		wantKick(t, q, backpressure.KickTooOld)
	})
}

func TestAgeIsThatOfTheOldestUnwrittenMessage(t *testing.T) {
	cfg := testConfig()
	cfg.Marks.MaxAge = time.Second
	onPipe(t, cfg, func(t *testing.T, q *Queue, client net.Conn) {
		say := func(s string) {
			send(t, q, text("%s", s))
			synctest.Wait()
		}
		say("read at once")
		wantFrames(t, client, "1:read at once")
		time.Sleep(time.Minute) // idle time is nobody's age
		say("stuck")
		time.Sleep(600 * time.Millisecond)
		say("behind it")
		if err := q.Cause(); err != nil {
			t.Fatalf("ended too early: %v", err)
		}
		time.Sleep(600 * time.Millisecond)
		say("finds the first too old")
		<-q.Done()
		wantKick(t, q, backpressure.KickTooOld)
	})
}

func TestAWriteThatTakesNothingIsAKick(t *testing.T) {
	cfg := testConfig()
	onPipe(t, cfg, func(t *testing.T, q *Queue, _ net.Conn) {
		start := time.Now()
		send(t, q, text("stuck"))
		<-q.Done()
		if took := time.Since(start); took != cfg.WriteTimeout {
			t.Errorf("ended after %v", took)
		}
		wantKick(t, q, backpressure.KickWriteTimeout)
	})
}

func TestABrokenSocketEndsTheQueueWithItsError(t *testing.T) {
	q, client := pipeQueue(testConfig())
	client.Close()
	send(t, q, text("nobody reads this"))
	<-q.Done()
	if cause := q.Cause(); cause == nil || !strings.HasPrefix(cause.Error(), "write: ") {
		t.Errorf("cause %v", cause)
	}
	checkEmpty(t, q)
}

func TestCloseAfterFlushWritesEverythingThenWaitsForThePeer(t *testing.T) {
	onPipe(t, testConfig(), func(t *testing.T, q *Queue, client net.Conn) {
		push(t, q, text("one"))
		push(t, q, text("two")) // no Wake: the close does it
		q.Ping([]byte("dropped, for it would come late"))
		synctest.Wait()
		wantFrames(t, client, "9:dropped, for it would come late")
		q.CloseAfterFlush(1012, "restart"+strings.Repeat("!", 200))
		q.CloseAfterFlush(1000, "the first wins")
		q.Pong(nil)
		late := text("late")
		if q.Notify(late, 4) || q.Reserve(1) != RefusedConnection || late.released.Load() != 1 {
			t.Error("something was accepted after the close")
		}
		wantFrames(t, client, "1:one", "1:two")
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
	})
}

func TestAnOrderlyCloseIsBounded(t *testing.T) {
	for _, reads := range []bool{true, false} {
		cfg := testConfig()
		onPipe(t, cfg, func(t *testing.T, q *Queue, client net.Conn) {
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
		})
	}
}

func TestTheNewestPongReplacesOneThatWaits(t *testing.T) {
	onPipe(t, testConfig(), func(t *testing.T, q *Queue, client net.Conn) {
		send(t, q, text("blocks the socket"))
		synctest.Wait()
		for i := range 100 {
			q.Pong(fmt.Append(nil, i))
			q.Ping(fmt.Append(nil, i))
		}
		send(t, q, text("reply"))
		synctest.Wait()
		wantFrames(t, client, "1:blocks the socket", "1:reply", "9:99", "a:99")
		end(t, q)
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
	checkReleased(t, all...)
	if q.Cause().Error() != "enough" {
		t.Errorf("cause %v", q.Cause())
	}
	if q.WaitReadable() {
		t.Error("a killed connection may be read")
	}
	checkEmpty(t, q)
}
