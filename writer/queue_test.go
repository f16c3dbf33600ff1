package writer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/test/lab/expect"
)

func TestRepliesOfOneWakeLeaveAsValidFramesInOneWrite(t *testing.T) {
	cfg := testConfig()
	cfg.Marks = backpressure.Marks{Off: true, High: 1, Max: 1 << 20}
	var stages [3]int
	for i, f := range []*func(time.Duration){&cfg.EncodeQueue, &cfg.Encode, &cfg.WriteQueue} {
		*f = func(d time.Duration) {
			stages[i]++
			if d < 0 || d > time.Minute {
				t.Errorf("stage %d took %v", i, d)
			}
		}
	}
	q, sock, pool := manual(cfg, 100)
	sizes := []int{0, 125, 126, 65535, 65536, 7}
	for _, n := range sizes {
		push(t, q, sized(n))
	}
	if len(pool.tasks) != 0 {
		t.Error("Push woke the queue")
	}
	q.Wake()
	q.Wake()
	if len(pool.tasks) != 1 {
		t.Errorf("%d tasks after two wakes, want 1", len(pool.tasks))
	}
	pool.runAll()
	<-sock.wrote
	end(t, q)
	if len(sock.all()) != 1 || sock.deadlines < 1 {
		t.Fatalf("%d writes, want 1, with a deadline", len(sock.all()))
	}
	got := frames(t, sock.all()[0])
	if len(got) != len(sizes) {
		t.Fatalf("%d frames, want %d", len(got), len(sizes))
	}
	for i, f := range got {
		if f.op != encodepool.OpText || len(f.payload) != sizes[i] {
			t.Errorf("frame %d: opcode %d, %d bytes, want %d", i, f.op, len(f.payload), sizes[i])
		}
	}
	if want := [3]int{6, 6, 6}; stages != want {
		t.Errorf("stages observed %v times, want %v", stages, want)
	}
	checkEmpty(t, q)
}

// The pool runs tasks in any order, several at a time. If two tasks of the queue
// could be under way, this would show it.
func TestOrderIsKeptUnderAPoolThatReordersTasks(t *testing.T) {
	const n, workers = 2000, 4
	cfg := testConfig()
	cfg.Marks, cfg.MaxMessages, cfg.Share = backpressure.Marks{Off: true, High: 1, Max: 1 << 30}, n, n
	q, sock, pool := manual(cfg, n)
	stop, left := make(chan struct{}), make(chan struct{}, workers)
	for i := range workers {
		go func() {
			defer func() { left <- struct{}{} }()
			for rng := rand.New(rand.NewPCG(1, uint64(i))); ; runtime.Gosched() {
				select {
				case <-stop:
					return
				default:
					pool.runOne(rng)
				}
			}
		}()
	}
	for i := range n {
		m := text("%d", i)
		m.yields = i % 7
		push(t, q, m)
		q.Wake()
		runtime.Gosched()
	}
	q.CloseAfterFlush(1000, "")
	q.PeerClosed()
	<-q.Done()
	close(stop)
	for range workers {
		<-left
	}
	got := frames(t, bytes.Join(sock.all(), nil))
	if len(got) != n+1 {
		t.Fatalf("%d frames, want %d and a close", len(got), n)
	}
	for i, f := range got[:n] {
		if want := string(text("%d", i).payload); string(f.payload) != want {
			t.Fatalf("frame %d holds message %s", i, f.payload)
		}
	}
	checkEmpty(t, q)
}

func TestReserveNamesTheStageThatIsFull(t *testing.T) {
	cfg, pool := testConfig(), newManualPool(3)
	cfg.MaxMessages = 4
	a, b := New(newMemorySocket(), pool, cfg), New(newMemorySocket(), pool, cfg)
	if got := a.Reserve(cfg.Marks.Max - encodepool.MaxHeader + 1); got != RefusedConnection {
		t.Errorf("more bytes than the cap: %q", got)
	}
	for range 2 {
		if got := a.Reserve(1990); got != Granted {
			t.Fatalf("within the cap: %q", got)
		}
	}
	if got := a.Reserve(1); got != RefusedConnection {
		t.Errorf("a full connection: %q", got)
	}
	if got := b.Reserve(1); got != Granted {
		t.Errorf("another connection: %q", got)
	}
	if got := b.Reserve(1); got != RefusedEncode {
		t.Errorf("a full pool: %q", got)
	}
	a.Unreserve(1990)
	a.Unreserve(1990)
	b.Unreserve(1)
	if pool.gate.Used() != 0 {
		t.Errorf("%d slots lost", pool.gate.Used())
	}
	end(t, a)
	if got := a.Reserve(1); got != RefusedConnection {
		t.Errorf("a closed connection: %q", got)
	}
	end(t, b)
	checkEmpty(t, a)
	checkEmpty(t, b)
}

func TestMessagesAndShareAreBounds(t *testing.T) {
	cfg, pool := testConfig(), newManualPool(100)
	cfg.MaxMessages, cfg.Share = 3, 2
	q := New(newMemorySocket(), pool, cfg)
	defer end(t, q)
	push(t, q, text("a"))
	push(t, q, text("b"))
	if got := q.Reserve(1); got != RefusedEncode {
		t.Errorf("beyond the share: %q", got)
	}
	q.Wake()
	pool.runAll() // encoded, perhaps not written: the slots are back
	for q.Reserve(1) == Granted {
		if q.msgs > cfg.MaxMessages {
			t.Fatalf("%d messages of %d", q.msgs, cfg.MaxMessages)
		}
		defer q.Unreserve(1)
	}
}

func TestAPromisedReplyIsSentWhateverNotificationsTry(t *testing.T) {
	cfg := testConfig()
	var drops []backpressure.DropReason
	cfg.OnDrop = func(r backpressure.DropReason) { drops = append(drops, r) }
	q, sock, pool := manual(cfg, 1000)
	if q.Reserve(3000) != Granted {
		t.Fatal("refused")
	}
	var notes []*message
	taken := 0
	for range 20 {
		m := sized(100)
		notes = append(notes, m)
		if q.Notify(m, 100) {
			taken++
		}
	}
	if taken != 9 {
		t.Errorf("%d notifications of 100 bytes and a header in the 990 that were left", taken)
	}
	if want := slices.Repeat([]backpressure.DropReason{backpressure.DropNoRoom}, 11); !slices.Equal(drops, want) {
		t.Errorf("dropped with %v", drops)
	}
	reply := sized(3000)
	q.Push(reply, 3000)
	q.Wake()
	q.CloseAfterFlush(1000, "")
	q.PeerClosed()
	pool.runAll()
	<-q.Done()
	got := frames(t, bytes.Join(sock.all(), nil))
	if len(got) != taken+2 || len(got[taken].payload) != 3000 {
		t.Errorf("%d frames were sent, want %d notifications, the reply and a close", len(got), taken)
	}
	checkReleased(t, append(notes, reply)...)
	checkEmpty(t, q)
}

func TestDropsAreCountedByReason(t *testing.T) {
	for _, c := range []struct {
		want  backpressure.DropReason
		slots int
		msgs  int
	}{
		{backpressure.DropEncode, 1, 10},
		{backpressure.DropMessages, 10, 1},
	} {
		cfg := testConfig()
		cfg.MaxMessages = c.msgs
		var got backpressure.DropReason
		cfg.OnDrop = func(r backpressure.DropReason) { got = r }
		q := New(newMemorySocket(), newGoPool(c.slots), cfg)
		if q.Reserve(1) != Granted {
			t.Fatal("refused")
		}
		m := text("dropped")
		if q.Notify(m, 1) || got != c.want || m.released.Load() != 1 {
			t.Errorf("dropped with %q and released %d times, want %q", got, m.released.Load(), c.want)
		}
		q.Unreserve(1)
		end(t, q)
	}
}

func TestAFailedEncodingIsAnsweredAndHarmsNoOther(t *testing.T) {
	cfg := testConfig()
	cfg.OnEncodeError = func(_ Message, err error) []byte {
		if err.Error() == "nothing to say" {
			return nil
		}
		return []byte("!" + err.Error())
	}
	q, sock, pool := manual(cfg, 10)
	alone, broken, silent, panics := text("half"), text("half"), text("half"), text("never")
	alone.err, broken.err, silent.err, panics.panics = errors.New("nothing to say"), errors.New("broken"), errors.New("nothing to say"), true
	send(t, q, alone)
	pool.runAll()
	if checkEmpty(t, q); len(sock.all()) != 0 {
		t.Errorf("written: %q", sock.all())
	}
	all := []*message{text("first"), broken, silent, panics, text("last")}
	for _, m := range all {
		push(t, q, m)
	}
	q.Wake()
	pool.runAll()
	<-sock.wrote
	end(t, q)
	var got []string
	for _, f := range frames(t, sock.all()[0]) {
		got = append(got, string(f.payload))
	}
	if want := "first|!broken|!encoding panicked: boom|last"; strings.Join(got, "|") != want {
		t.Errorf("sent %q, want %q", got, want)
	}
	checkReleased(t, append(all, alone)...)
	checkEmpty(t, q)
}

func TestAnIdleQueueHoldsNothing(t *testing.T) {
	q, sock, pool := manual(testConfig(), 10)
	depth := func(want Depth) {
		t.Helper()
		if got := q.Depth(); got != want {
			t.Errorf("the depth is %+v, want %+v", got, want)
		}
	}
	const size = 300
	if q.Reserve(size) != Granted {
		t.Fatal("refused")
	}
	depth(Depth{Promised: size + encodepool.MaxHeader, Messages: 1})
	q.Push(sized(size), size)
	depth(Depth{Bytes: size + encodepool.MaxHeader, Messages: 1})
	q.Wake()
	pool.runAll()
	<-sock.wrote
	for q.busy() {
		runtime.Gosched()
	}
	checkEmpty(t, q)
	end(t, q)
	depth(Depth{})
	if size := unsafe.Sizeof(*q); size > 512 {
		t.Errorf("a queue is %d bytes, want at most 512", size)
	}
}

// busy reports whether a goroutine of the queue is at work.
func (q *Queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.encoding || q.writing
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"messages":    func(c *Config) { c.MaxMessages = 0 },
		"share":       func(c *Config) { c.Share = 0 },
		"timeout":     func(c *Config) { c.WriteTimeout = 0 },
		"close":       func(c *Config) { c.CloseTimeout = -1 },
		"encoding":    func(c *Config) { c.OnEncodeError = nil },
		"writer: low": func(c *Config) { c.Marks.Low = 5000 },
	} {
		cfg := testConfig()
		change(cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	expect.Check(t, testConfig().Validate())
}
