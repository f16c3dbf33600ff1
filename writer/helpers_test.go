package writer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/taskpool"
	"noncegate/test/lab/expect"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// testConfig has marks that are easy to reach; substitutes are "!" and the error.
func testConfig() *Config {
	return &Config{
		Marks:       backpressure.Marks{High: 1000, Low: 200, Max: 4000, SlowAfter: 10 * time.Second, Pause: true, Drop: true, Kick: true},
		MaxMessages: 1000, Share: 1000,
		WriteTimeout: 30 * time.Second, CloseTimeout: 5 * time.Second,
		KickCode: 4001, KickText: "slow_consumer",
		OnEncodeError: func(_ Message, err error) []byte { return []byte("!" + err.Error()) },
	}
}

// message counts its releases.
type message struct {
	payload  []byte
	err      error
	panics   bool
	yields   int // lets others run while it is being encoded
	released atomic.Int32
}

func text(format string, args ...any) *message {
	return &message{payload: fmt.Appendf(nil, format, args...)}
}

func sized(n int) *message { return &message{payload: bytes.Repeat([]byte("x"), n)} }

func (m *message) Append(dst []byte) ([]byte, error) {
	if m.panics {
		panic("boom")
	}
	for range m.yields {
		runtime.Gosched()
	}
	return append(dst, m.payload...), m.err
}

func (m *message) Release() { m.released.Add(1) }

// manualPool keeps tasks until the test runs them.
type manualPool struct {
	gate  *backpressure.Gate
	mu    sync.Mutex
	tasks []taskpool.Task
}

func newManualPool(capacity int) *manualPool {
	return &manualPool{gate: backpressure.NewGate(capacity)}
}

func (p *manualPool) TryReserve(s *backpressure.Share, n int) bool { return p.gate.TryTake(s, n) }
func (p *manualPool) TryReserveSpare(s *backpressure.Share, n int) bool {
	return p.gate.TryTakeSpare(s, n)
}
func (p *manualPool) Unreserve(s *backpressure.Share, n int) { p.gate.Give(s, n) }
func (p *manualPool) Submit(t taskpool.Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tasks = append(p.tasks, t)
}

// runOne runs one waiting task, chosen at random if rng is given.
func (p *manualPool) runOne(rng *rand.Rand) bool {
	p.mu.Lock()
	if len(p.tasks) == 0 {
		p.mu.Unlock()
		return false
	}
	i := 0
	if rng != nil {
		i = rng.IntN(len(p.tasks))
	}
	t := p.tasks[i]
	p.tasks = append(p.tasks[:i], p.tasks[i+1:]...)
	p.mu.Unlock()
	t.Run()
	return true
}

func (p *manualPool) runAll() {
	for p.runOne(nil) {
	}
}

// goPool runs each task at once in a goroutine of its own.
type goPool struct{ *manualPool }

func newGoPool(capacity int) goPool     { return goPool{newManualPool(capacity)} }
func (p goPool) Submit(t taskpool.Task) { go t.Run() }

// memorySocket takes everything and tells of each write.
type memorySocket struct {
	mu        sync.Mutex
	writes    [][]byte
	deadlines int
	deadline  time.Time // the last one
	closed    chan struct{}
	wrote     chan struct{} // one signal for each write
}

func newMemorySocket() *memorySocket {
	return &memorySocket{closed: make(chan struct{}), wrote: make(chan struct{}, 1<<16)}
}

func (s *memorySocket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, bytes.Clone(p))
	s.wrote <- struct{}{}
	return len(p), nil
}

func (s *memorySocket) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines++
	s.deadline = at
	return nil
}

func (s *memorySocket) Close() error {
	close(s.closed) // a second Close panics, as it should
	return nil
}

// all returns what was written, each write apart.
func (s *memorySocket) all() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// eagerMemory is a memorySocket that takes some of what it is offered at once: all
// of it where the next byte of takes is even, else that many bytes at most.
type eagerMemory struct {
	*memorySocket
	takes []byte
	tries int
}

func (s *eagerMemory) TryWrite(p []byte) int {
	n := len(p)
	if s.tries < len(s.takes) && s.takes[s.tries]%2 == 1 {
		n = min(n, int(s.takes[s.tries]))
	}
	s.tries++
	if n > 0 {
		_, _ = s.Write(p[:n])
	}
	return n
}

// frame is what a reader sees.
type frame struct {
	op      encodepool.Opcode
	payload []byte
}

func (f frame) String() string { return fmt.Sprintf("%x:%s", byte(f.op), f.payload) }

// readFrame reads one frame as RFC 6455 describes it and insists on what a
// server must send.
func readFrame(r io.Reader) (frame, error) {
	var h [8]byte
	if _, err := io.ReadFull(r, h[:2]); err != nil {
		return frame{}, err
	}
	if h[0]&0xF0 != 0x80 || h[1]&0x80 != 0 {
		return frame{}, fmt.Errorf("fragmented, reserved or masked frame % x", h[:2])
	}
	op, n := encodepool.Opcode(h[0]&0xF), uint64(h[1])
	if ext := map[uint64]int{126: 2, 127: 8}[n]; ext > 0 {
		if _, err := io.ReadFull(r, h[8-ext:]); err != nil {
			return frame{}, err
		}
		clear(h[:8-ext])
		n = binary.BigEndian.Uint64(h[:])
	}
	payload := make([]byte, n)
	_, err := io.ReadFull(r, payload)
	return frame{op, payload}, err
}

// frames parses a whole stream.
func frames(t testing.TB, stream []byte) []frame {
	t.Helper()
	var all []frame
	for r := bytes.NewReader(stream); ; {
		f, err := readFrame(r)
		if errors.Is(err, io.EOF) {
			return all
		}
		expect.Must(t, err)
		all = append(all, f)
	}
}

// push sends a reply of its own size through all of admission.
func push(t testing.TB, q *Queue, m *message) {
	t.Helper()
	if got := q.Reserve(int64(len(m.payload))); got != Granted {
		t.Fatalf("refused: %s", got)
	}
	q.Push(m, int64(len(m.payload)))
}

// send pushes a reply and wakes the queue.
func send(t testing.TB, q *Queue, m *message) {
	t.Helper()
	push(t, q, m)
	q.Wake()
}

// manual is a queue whose encode tasks the test runs.
func manual(cfg *Config, slots int) (*Queue, *memorySocket, *manualPool) {
	sock, pool := newMemorySocket(), newManualPool(slots)
	return New(sock, pool, cfg), sock, pool
}

// checkReleased fails unless each message was released once.
func checkReleased(t testing.TB, all ...*message) {
	t.Helper()
	for i, m := range all {
		if m.released.Load() != 1 {
			t.Errorf("message %d was released %d times", i, m.released.Load())
		}
	}
}

// wantKick fails unless the queue ended because its client was too slow in that way.
func wantKick(t testing.TB, q *Queue, reason backpressure.KickReason) {
	t.Helper()
	if kick, ok := errors.AsType[*KickError](q.Cause()); !ok || kick.Reason != reason {
		t.Errorf("cause %v, want %q", q.Cause(), reason)
	}
}

// checkEmpty fails unless everything was given back.
func checkEmpty(t testing.TB, q *Queue) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.msgs != 0 || q.reserved != 0 || q.queued != 0 || q.unwritten != 0 || q.share.Used() != 0 {
		t.Errorf("left over: %d messages, %d reserved, %d queued, %d unwritten bytes, %d slots",
			q.msgs, q.reserved, q.queued, q.unwritten, q.share.Used())
	}
	if q.pending != nil || q.ready != nil || q.alarm != nil || q.alarms != 0 {
		t.Errorf("held by an idle queue: pending %v, ready %v, alarm %v (%d)", q.pending, q.ready, q.alarm, q.alarms)
	}
}

// end kills the queue and waits.
func end(t testing.TB, q *Queue) {
	t.Helper()
	q.Kill(net.ErrClosed)
	<-q.Done()
}
