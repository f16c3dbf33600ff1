package service_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// saysKnown tells a write of another version that a request id of it is known, as a store may
// that looks for ids after its commit.
type saysKnown struct{ *disk }

func (d saysKnown) Ship(ctx context.Context, h lease.Holder, s nonce.Shipment) (nonce.Shipped, error) {
	out, err := d.disk.Ship(ctx, h, s)
	for i, r := range out.Results {
		if r == nonce.Moved && len(s.Writes[i].Requests) > 0 {
			out.Results[i] = nonce.IDKnown
		}
	}
	return out, err
}

// parts has a node and the store lose each other, beside what happens already.
func (l *logged) parts(name string) {
	before := l.disk.before
	l.disk.onBefore(func(c memstore.Call) error {
		if c.Holder.Node == name {
			return away
		}
		if before != nil {
			return before(c)
		}
		return nil
	})
	l.disk.mute(name, true)
}

// afterTheLoss is b, which has declared the log of a lost, with the shards.
func (l *logged) afterTheLoss() *node {
	b, way := l.start("b")
	way.refuses.Store(true)
	l.await(5*time.Minute, "b has the shards", func() bool { return l.owners(func(o owned) bool { return o.node == "b" && !o.log }) == shards })
	return b
}

// TestAMarkOfADoubtfulNonceThatIsRepeatedWaitsAsTheFirstDoes: until the lost log gives no more. While
// they wait, and batches come, the worker has one timer.
func TestAMarkOfADoubtfulNonceThatIsRepeatedWaitsAsTheFirstDoes(t *testing.T) {
	inLogs(t, func(l *logged) {
		const waiting, batches = 20, 2000
		a, _ := l.start("a", func(c *service.Config) { logs(c).Grant = 2 * time.Minute })
		l.on(a)
		name := l.disk.nameIn(0)
		for i := range waiting {
			a.want(fmt.Sprintf("allocate hold=8m signer=%s -> %d#1", name, i))
		}
		a.engine.Ship()
		l.parts("a")
		began := time.Now()
		b := l.afterTheLoss()
		var marks []*pending
		for range 2 {
			for i := range waiting {
				marks = append(marks, b.send(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: name, Nonce: int64(i), Attempt: 1}})...)
			}
			time.Sleep(time.Second)
		}
		marks = append(marks, b.send(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindSetFloor, Signer: name, Floor: waiting}})...) // nothing is in doubt any more
		before := heap()
		for range batches {
			b.run("status signer=" + name)
		}
		if grown := heap() - before; grown > 2<<20 {
			l.Errorf("%d batches beside %d answers that wait left %d bytes", batches, waiting, grown)
		}
		time.Sleep(90*time.Second - time.Since(began))
		for i, m := range marks {
			if m.answered() {
				l.Fatalf("answer %d came before the grant had ended: %s", i, m.wait())
			}
		}
		for _, m := range marks {
			if got := m.wait(); got != "CONSUMED" && !strings.HasPrefix(got, "floor ") {
				l.Errorf("told %s", got)
			}
		}
		if took := time.Since(began); took > 2*time.Minute+5*time.Second {
			l.Errorf("told after %v", took)
		}
	})
}

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
