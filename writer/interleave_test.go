package writer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"noncegate/encodepool"
	"noncegate/test/lab/expect"
)

// FuzzScript interprets each byte as one call on a queue, and in between runs
// encode tasks one at a time. Whatever the order of calls: messages leave in the
// order they were queued, the bounds hold, and in the end everything was released
// once and given back.
func FuzzScript(f *testing.F) {
	f.Add([]byte{0, 1, 3, 5, 0, 0, 1, 1, 3, 5, 8})
	f.Add([]byte{2, 2, 2, 5, 6, 7, 2, 3, 5, 10})
	f.Add([]byte{0, 0, 0, 4, 1, 9, 1, 2, 5, 8})
	f.Add([]byte{0, 0, 1, 1})
	f.Add([]byte{0, 1, 3, 7, 8, 5, 10, 1, 3})
	f.Add(bytes.Repeat([]byte{0, 1, 2, 2, 2, 3}, 50))
	f.Add(bytes.Repeat([]byte{2, 5}, 100))
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, socket := range []Socket{newMemorySocket(), &eagerMemory{memorySocket: newMemorySocket(), takes: script}} {
			s := newScript(t, socket)
			for _, b := range script {
				s.step(b)
				s.checkBounds()
			}
			s.finish()
		}
	})
}

// script is a queue under test and what it must have sent.
type script struct {
	t        *testing.T
	sock     *memorySocket
	pool     *manualPool
	q        *Queue
	promised []int64 // reservations that are out
	all      []*message
}

func newScript(t *testing.T, socket Socket) *script {
	s := &script{t: t, pool: newManualPool(30)}
	switch socket := socket.(type) {
	case *memorySocket:
		s.sock = socket
	case *eagerMemory:
		s.sock = socket.memorySocket
	}
	cfg := testConfig()
	cfg.MaxMessages, cfg.Share = 40, 25
	s.q = New(socket, s.pool, cfg)
	return s
}

// next is a message that says its number, padded to a size that varies.
func (s *script) next(size int) *message {
	m := text("%-*d", size, len(s.all))
	s.all = append(s.all, m)
	return m
}

func (s *script) step(b byte) {
	size := int64(b) + 4
	switch b % 12 {
	case 0:
		if s.q.Reserve(size) == Granted {
			s.promised = append(s.promised, size)
		}
	case 1:
		s.settle(func(n int64) { s.q.Push(s.next(int(n)), n) })
	case 2:
		s.q.Notify(s.next(int(size)), size)
	case 3:
		s.q.Wake()
	case 4:
		s.settle(s.q.Unreserve)
	case 5:
		s.pool.runOne(nil)
	case 6:
		s.q.Ping([]byte("ping"))
	case 7:
		s.q.Pong([]byte("pong"))
	case 8:
		s.q.CloseAfterFlush(1000, "bye")
	case 9:
		if b > 200 {
			s.q.Kill(net.ErrClosed)
		}
	case 10:
		s.q.PeerClosed()
	case 11:
		runtime.Gosched()
	}
}

// settle ends one reservation.
func (s *script) settle(how func(int64)) {
	if n := len(s.promised); n > 0 {
		how(s.promised[n-1])
		s.promised = s.promised[:n-1]
	}
}

func (s *script) checkBounds() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	q := s.q
	if held := q.reserved + q.queued + q.unwritten; held > q.cfg.Marks.Max || q.msgs > q.cfg.MaxMessages {
		s.t.Fatalf("%d bytes and %d messages are held", held, q.msgs)
	}
	if q.reserved < 0 || q.queued < 0 || q.unwritten < 0 || q.msgs < 0 {
		s.t.Fatalf("given back twice: %d, %d, %d bytes, %d messages", q.reserved, q.queued, q.unwritten, q.msgs)
	}
}

func (s *script) finish() {
	for len(s.promised) > 0 {
		s.settle(s.q.Unreserve)
	}
	s.q.Kill(net.ErrClosed)
	s.pool.runAll()
	<-s.q.Done()
	select {
	case <-s.sock.closed:
	default:
		s.t.Error("done before the socket was closed")
	}
	checkEmpty(s.t, s.q)
	if n := s.pool.gate.Used(); n != 0 {
		s.t.Errorf("%d slots of the pool lost", n)
	}
	checkReleased(s.t, s.all...)
	checkOrder(s.t, s.sock.all())
}

// checkOrder fails unless the numbers of the text frames ascend and nothing
// follows a close frame.
func checkOrder(t *testing.T, writes [][]byte) {
	t.Helper()
	last, closed := -1, false
	for _, f := range frames(t, bytes.Join(writes, nil)) {
		if closed {
			t.Fatalf("%v follows the close frame", f)
		}
		closed = f.op == encodepool.OpClose
		if f.op != encodepool.OpText {
			continue
		}
		n, err := strconv.Atoi(string(bytes.TrimSpace(f.payload)))
		if err != nil || n <= last {
			t.Fatalf("message %d after message %d (%v)", n, last, err)
		}
		last = n
	}
}

// TestConcurrentCallersLoseNothing lets callers, the real pool, readers of every
// speed and closes meet at random.
func TestConcurrentCallersLoseNothing(t *testing.T) {
	pool, err := encodepool.New(encodepool.Config{Workers: 3, Queue: 200}, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8) // rounds at a time, over one pool
	for round := range rounds {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			oneLife(t, pool, rand.New(rand.NewPCG(7, uint64(round))))
		})
	}
	wg.Wait()
	expect.Check(t, pool.Stop(context.Background()))
	if pool.Reserved() != 0 || pool.Panics() != 0 {
		t.Errorf("%d slots lost, %d panics", pool.Reserved(), pool.Panics())
	}
}

// oneLife is a connection from its first message to its end.
func oneLife(t *testing.T, pool *encodepool.Pool, rng *rand.Rand) {
	cfg := testConfig()
	cfg.Marks.SlowAfter = time.Duration(1+rng.IntN(5)) * time.Millisecond
	cfg.WriteTimeout = time.Duration(1+rng.IntN(5)) * time.Millisecond
	cfg.CloseTimeout = 2 * time.Millisecond
	cfg.Share, cfg.MaxMessages = 1+rng.IntN(100), 1+rng.IntN(100)
	server, client := net.Pipe()
	q := New(server, pool, cfg)

	var callers sync.WaitGroup
	reads := rng.IntN(300)
	callers.Go(func() { readSome(client, reads) })
	callers.Go(func() {
		for q.WaitReadable() && q.Cause() == nil {
			runtime.Gosched()
		}
	})
	lists := make([][]*message, 3)
	for i := range lists {
		seed := rng.Uint64()
		callers.Go(func() { lists[i] = callAtRandom(q, rand.New(rand.NewPCG(seed, 0))) })
	}
	if how := rng.IntN(3); how == 0 {
		q.Kill(errors.New("test"))
	} else {
		for range rng.IntN(2000) {
			runtime.Gosched()
		}
		q.CloseAfterFlush(1000, "bye")
		if how == 1 {
			q.PeerClosed()
		}
	}
	<-q.Done()
	callers.Wait()
	client.Close()
	checkEmpty(t, q)
	checkReleased(t, slices.Concat(lists...)...)
}

// readSome reads n frames and then no more until the connection ends.
func readSome(client net.Conn, n int) {
	for range n {
		if _, err := readFrame(client); err != nil {
			return
		}
	}
	if rand.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, client)
	}
}

// callAtRandom makes calls until the queue is closed, settles what it was
// promised and returns the messages it handed over.
func callAtRandom(q *Queue, rng *rand.Rand) (handed []*message) {
	promised := 0
	hand := func() *message {
		m := sized(20)
		m.panics = rng.IntN(50) == 0
		handed = append(handed, m)
		return m
	}
	for i := 0; q.Cause() == nil && i < 3000; i++ {
		switch rng.IntN(8) {
		case 0, 1, 2:
			if q.Reserve(40) == Granted {
				promised++
			}
		case 3, 4:
			for ; promised > 0; promised-- {
				q.Push(hand(), 40)
			}
			q.Wake()
		case 5:
			q.Notify(hand(), 20)
		case 6:
			q.Pong(nil)
		case 7:
			if promised > 0 {
				promised--
				q.Unreserve(40)
			}
		}
	}
	for ; promised > 0; promised-- {
		q.Push(hand(), 40)
	}
	q.Wake()
	return handed
}
