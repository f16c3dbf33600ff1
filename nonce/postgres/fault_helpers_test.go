package postgres_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/pgtest"
	"noncegate/lease"
	"noncegate/nonce"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

var (
	alice = lease.Holder{Node: "alice", Incarnation: 1}
	bob   = lease.Holder{Node: "bob", Incarnation: 1}
)

const (
	signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	long   = time.Hour
	over   = time.Microsecond // a lease that has ended when its grant is read
)

func dial(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// await asks done until it says yes.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

// acquire takes the lease of a signer, which must be possible.
func acquire(t testing.TB, s nonce.Store, h lease.Holder, ttl time.Duration, need nonce.Need) nonce.Snapshot {
	t.Helper()
	snaps, err := s.Acquire(t.Context(), h, ttl, []nonce.Need{need})
	if err != nil {
		t.Fatal(err)
	}
	if !snaps[0].Acquired {
		t.Fatalf("%s was not acquired: %+v", need.Signer, snaps[0].Lease)
	}
	return snaps[0]
}

// all reads a signer with its lowest rows and a request id.
func all(t testing.TB, s nonce.Store, name, requestID string) nonce.Snapshot {
	t.Helper()
	snaps, err := s.Load(t.Context(), []nonce.Need{{Signer: name, Released: 10, Nonces: []int64{0, 1, 2, 3, 100}, RequestIDs: []string{requestID}}})
	if err != nil {
		t.Fatal(err)
	}
	return snaps[0]
}

// handOut is a change that hands out the next n nonces.
func handOut(s nonce.Snapshot, n int) nonce.Change {
	c := nonce.Change{
		ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version,
		Next: s.Next, Floor: s.Floor, Held: s.Held + int64(n),
	}
	for range n {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: c.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Minute})
		c.Next++
	}
	return c
}

// asked adds the request id that the nonces of a change are the answer to.
func asked(c nonce.Change, id string) nonce.Change {
	r := nonce.Request{ID: id}
	for _, row := range c.Rows {
		r.Nonces, r.Attempts = append(r.Nonces, row.Nonce), append(r.Attempts, row.Attempt)
	}
	c.Requests = []nonce.Request{r}
	return c
}

// commit commits one change and reports whether it was applied.
func commit(t testing.TB, s nonce.Store, h lease.Holder, c nonce.Change) bool {
	t.Helper()
	res, err := s.Commit(t.Context(), h, long, []nonce.Change{c})
	if err != nil {
		t.Fatal(err)
	}
	return res.Applied[0]
}

// relay is a server's address that can move to another server. It counts what
// clients wait for: each Sync and each simple query is a round trip.
type relay struct {
	ln    net.Listener
	trips atomic.Int64
	wg    sync.WaitGroup

	mu     sync.Mutex // guards what follows
	target string
	conns  []net.Conn
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, target: target}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

func (r *relay) url(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = r.ln.Addr().String()
	return u.String()
}

// move sends new connections to another server and leaves the others.
func (r *relay) move(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *relay) accept() {
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			r.mu.Unlock()
			_ = client.Close()
			continue
		}
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.wg.Go(func() {
			defer server.Close()
			_ = r.requests(server, client)
		})
		r.wg.Go(func() {
			defer client.Close()
			_, _ = io.Copy(client, server)
		})
	}
}

// requests copies what a client says, message by message.
func (r *relay) requests(server io.Writer, client io.Reader) error {
	for kind := byte(0); ; { // the first message has no kind
		head := make([]byte, 4, 512)
		if kind != 0 {
			head = head[:5]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return err
		}
		length := binary.BigEndian.Uint32(head[len(head)-4:])
		if length < 4 || length > 1<<26 {
			return errors.New("not the protocol")
		}
		message := append(head, make([]byte, length-4)...)
		if _, err := io.ReadFull(client, message[len(head):]); err != nil {
			return err
		}
		if kind != 0 && (message[0] == 'S' || message[0] == 'Q') {
			r.trips.Add(1)
		}
		if _, err := server.Write(message); err != nil {
			return err
		}
		kind = 1
	}
}

// proxied makes a migrated database and a store that reaches it through a proxy,
// over one connection at a time.
func proxied(t *testing.T) (direct string, s nonce.Store, p *pgtest.Proxy) {
	t.Helper()
	direct = migrated(t)
	p, err := pgtest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	through, err := p.URL(direct)
	if err != nil {
		t.Fatal(err)
	}
	return direct, openStore(t, through+"&pool_max_conns=1"), p
}
