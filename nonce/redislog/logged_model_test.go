package redislog_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

var (
	histories = flag.Int("histories", 2, "random histories of the logged model")
	seed      = flag.Uint64("seed", 0, "of the first of them; 0: by the clock")
	lasts     = flag.Duration("history", 6*time.Second, "how long each lasts")
)

// TestRandomHistoriesOfLoggedShards lets clients use two nodes over one database and one real
// Redis while everything fails in turn, and judges what they were told.
func TestRandomHistoriesOfLoggedShards(t *testing.T) {
	first := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	for i := range *histories {
		t.Run(fmt.Sprint(first+uint64(i)), func(t *testing.T) {
			t.Parallel()
			history(t, first+uint64(i))
		})
	}
}

// said is an op as a client saw it.
type said struct {
	op         *nonce.Op
	node       string
	sent, told time.Time
}

func (s said) String() string {
	op := s.op
	return fmt.Sprintf("%s %v %s n=%d a=%d id=%q -> %v#%v until %s err=%v [%s..%s]", s.node, op.Kind, op.Signer, op.Nonce, op.Attempt, op.RequestID,
		op.Nonces, op.Attempts, clockOf(op.HeldUntil), op.Err, clockOf(s.sent), clockOf(s.told))
}

func clockOf(t time.Time) string { return t.Format("05.000") }

type book struct {
	mu  sync.Mutex
	all []said
}

func (b *book) write(s said) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, s)
}

// oks is how many ops were told ok.
func (b *book) oks() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.all {
		if s.op.Err == nil {
			n++
		}
	}
	return n
}

// enough ops that were told ok make a history that says something.
const enough = 100

var signers = []string{"s0", "s1", "s2", "s3"}

func history(t *testing.T, seed uint64) {
	w := newWorld(t)
	w.logs = slog.LevelError + 4
	rnd := rand.New(rand.NewPCG(seed, 1))
	quick := func(c *service.Config) { c.LockWait, c.StoreTimeout = 300*time.Millisecond, 300*time.Millisecond }
	for i, name := range []string{"a", "b"} {
		w.start(name, seed+uint64(i), quick)
	}
	w.nodes[0].switchTo(true)
	b := &book{}
	ctx, stop := context.WithTimeout(context.Background(), 5**lasts)
	defer stop()
	var clients sync.WaitGroup
	for i := range 4 {
		c := &client{w: w, book: b, rnd: rand.New(rand.NewPCG(seed, uint64(10+i))), name: fmt.Sprint("c", i)}
		clients.Go(func() { c.run(ctx) })
	}
	for began := time.Now(); ctx.Err() == nil && (time.Since(began) < *lasts || b.oks() < enough); { // a busy machine takes longer
		w.fault(ctx, rnd)
	}
	stop()
	clients.Wait()
	for _, n := range w.nodes {
		n.calm()
		n.faults.late.Wait()
	}
	w.nodes[0].switchTo(false)
	w.allReliable()
	b.judge(t, w)
}

// fault has one thing go wrong for a while.
func (w *world) fault(ctx context.Context, rnd *rand.Rand) {
	n := w.nodes[rnd.IntN(len(w.nodes))]
	wait := func(most int) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rnd.IntN(most)) * time.Millisecond):
		}
	}
	wait(300)
	switch rnd.IntN(14) {
	case 0:
		_ = w.server.Restart()
	case 1:
		_ = w.server.SetBack(int64(rnd.IntN(3000)))
	case 2:
		w.flush()
	case 3:
		_ = w.server.Pause()
		wait(600)
		_ = w.server.Resume()
	case 4:
		n.faults.log.Store(true)
		wait(900)
		n.faults.log.Store(false)
	case 5:
		n.faults.store.Store(true)
		wait(1500)
		n.faults.store.Store(false)
	case 6:
		n.muted.Store(true)
		wait(2000)
		n.muted.Store(false)
	case 7: // the owner and Redis, for it, part from the others
		n.faults.store.Store(true)
		w.other(n).faults.log.Store(true)
		wait(2500)
		n.faults.store.Store(false)
		w.other(n).faults.log.Store(false)
	case 8, 9, 10:
		n.faults.odds.Store(int64(rnd.IntN(300)))
		wait(700)
		n.faults.odds.Store(0)
	case 13:
		_, _ = n.Switch(context.Background(), true, time.Duration(rnd.IntN(300))*time.Millisecond, "test")
	case 11:
		_, _ = n.Switch(context.Background(), false, 0, "test")
	case 12:
		shard := rnd.IntN(w.shards)
		_, _ = n.Move(context.Background(), shard, w.other(n).holder.Node)
	}
	if rnd.IntN(2) == 0 {
		_, _ = w.nodes[0].Switch(context.Background(), true, 0, "test")
	}
}

func (w *world) flush() {
	c := w.server.Client(w.T) // which empties it at the end, too
	_ = c.FlushAll(context.Background()).Err()
}

func (w *world) other(n *node) *node {
	if w.nodes[0] == n {
		return w.nodes[1]
	}
	return w.nodes[0]
}

// client asks for nonces and says what became of them.
type client struct {
	w    *world
	book *book
	rnd  *rand.Rand
	name string
	has  []*nonce.Op // hand-outs that were not marked
	ids  []*nonce.Op // asked with a request id, to be repeated
	n    int
}

func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		op, told := c.next(), (*nonce.Op)(nil)
		n := c.w.nodes[c.rnd.IntN(len(c.w.nodes))]
		for range 3 { // where another node is named, go there
			s := said{op: op, node: c.name + "@" + n.holder.Node, sent: time.Now()}
			n.do(op)
			s.told = time.Now()
			copied := *op
			s.op, told = &copied, &copied
			c.book.write(s)
			elsewhere, is := errors.AsType[*nonce.NotOwnerError](op.Err)
			if !is || elsewhere.Node == n.holder.Node {
				break
			}
			n = c.w.other(n)
			again := *op
			op = &nonce.Op{Kind: again.Kind, Signer: again.Signer, Count: again.Count, RequestID: again.RequestID, Nonce: again.Nonce, Attempt: again.Attempt, Floor: again.Floor}
		}
		if told.Kind == nonce.KindAllocate && told.Err == nil {
			c.has = append(c.has, told)
		}
		time.Sleep(time.Duration(c.rnd.IntN(8)) * time.Millisecond)
	}
}

func (c *client) next() *nonce.Op {
	if len(c.has) > 0 && c.rnd.IntN(5) < 3 {
		i := c.rnd.IntN(len(c.has))
		of := c.has[i]
		c.has = slices.Delete(c.has, i, i+1)
		kind := nonce.KindMarkUsed
		switch c.rnd.IntN(6) {
		case 0, 1:
			kind = nonce.KindMarkRecyclable
		case 2:
			return allocate(of.Signer) // and it is forgotten
		}
		return &nonce.Op{Kind: kind, Signer: of.Signer, Nonce: of.Nonces[0], Attempt: of.Attempts[0]}
	}
	if len(c.ids) > 0 && c.rnd.IntN(6) == 0 {
		of := c.ids[c.rnd.IntN(len(c.ids))]
		op := allocate(of.Signer)
		op.RequestID = of.RequestID
		return op
	}
	op := allocate(signers[c.rnd.IntN(len(signers))])
	if c.rnd.IntN(4) == 0 {
		c.n++
		op.RequestID = fmt.Sprintf("%s-%d", c.name, c.n)
		c.ids = append(c.ids, op)
	}
	return op
}

// judge looks at all that was told.
func (b *book) judge(t *testing.T, w *world) {
	oks := b.oks()
	counts := make(map[string]int)
	for _, s := range b.all {
		word := "ok"
		if s.op.Err != nil {
			word, _, _ = strings.Cut(s.op.Err.Error(), ":")
		}
		counts[s.op.Kind.String()+" "+word]++
	}
	t.Logf("%d ops, %d ok, %d losses: %v", len(b.all), oks, w.nodes[0].Engine().Lost+w.nodes[1].Engine().Lost, counts)
	if oks < enough {
		t.Errorf("only %d ops were told ok, which says little", oks)
	}
	for _, name := range signers {
		b.judgeSigner(t, w, name)
	}
	if t.Failed() {
		for _, s := range b.all {
			t.Log(s)
		}
		t.Log(w.state())
	}
}

// given is a hand-out of one nonce.
type given struct {
	said
	attempt int64
}

func (b *book) judgeSigner(t *testing.T, w *world, name string) {
	by := make(map[int64][]given)
	usedAt := make(map[int64]time.Time) // told
	ended := make(map[string]time.Time) // sent: a mark that may have ended the attempt
	ids := make(map[string]said)
	l := w.row(name)
	for _, s := range b.all {
		op := s.op
		if op.Signer != name {
			continue
		}
		switch key := fmt.Sprintf("%d#%d", op.Nonce, op.Attempt); {
		case op.Kind == nonce.KindAllocate && op.Err == nil:
			if first, there := ids[op.RequestID]; there && op.RequestID != "" {
				same := first.op.Nonces[0] == op.Nonces[0] && first.op.Attempts[0] == op.Attempts[0]
				if !same && l.Shard.Epoch == 0 { // else it was lost before it was shipped, perhaps
					t.Errorf("one request id, two hand-outs:\n%v\n%v", first, s)
				}
				if same {
					continue
				}
			}
			ids[op.RequestID] = s
			by[op.Nonces[0]] = append(by[op.Nonces[0]], given{s, op.Attempts[0]})
		case op.Kind == nonce.KindMarkUsed && op.Err == nil:
			if at, there := usedAt[op.Nonce]; !there || s.told.Before(at) {
				usedAt[op.Nonce] = s.told
			}
		case op.Kind == nonce.KindMarkRecyclable:
			if at, there := ended[key]; !there || s.sent.Before(at) {
				ended[key] = s.sent
			}
		}
	}
	need := nonce.SignerNeed{Signer: name}
	for n := range l.Signer.Next {
		need.History = append(need.History, n)
	}
	loaded, err := w.store.Load(context.Background(), []nonce.SignerNeed{need})
	if err != nil {
		t.Fatal(err)
	}
	row, past := loaded.Signers[0].Signer, loaded.Signers[0].History
	for n := range row.Next {
		_, live := row.Find(n)
		switch {
		case !live && past[n] == nil:
			t.Errorf("%s: nonce %d is nowhere", name, n)
		case live && past[n] != nil:
			t.Errorf("%s: nonce %d is live and in the history", name, n)
		}
	}
	for n, at := range usedAt {
		if _, live := row.Find(n); live || past[n] == nil {
			t.Errorf("%s: nonce %d was told to be used at %s, and it is not", name, n, clockOf(at))
		}
	}
	for n, all := range by {
		slices.SortFunc(all, func(a, b given) int { return cmp.Compare(a.attempt, b.attempt) })
		if n >= row.Next {
			t.Errorf("%s: nonce %d was handed out, and the next is %d", name, n, row.Next)
		}
		for i, g := range all {
			if at, used := usedAt[n]; used && g.sent.After(at) && g.op.RequestID == "" {
				t.Errorf("%s: handed out after it was told to be used at %s: %v", name, clockOf(at), g)
			}
			if i == 0 {
				continue
			}
			before := all[i-1]
			end, marked := ended[fmt.Sprintf("%d#%d", n, before.attempt)]
			over := before.op.HeldUntil.Before(g.told) || marked && end.Before(g.told)
			if before.attempt == g.attempt || !over {
				t.Errorf("%s: nonce %d has two holders:\n%v\n%v", name, n, before, g)
			}
		}
	}
}
