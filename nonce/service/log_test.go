package service_test

import (
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/shardmodel"
)

// storeAway is a store that is out of reach.
func storeAway(shardmodel.Call) error { return away }

func TestNothingIsToldByTheLogAlonePastTheGrant(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		l.allocateAll(n)
		l.disk.onBefore(storeAway)
		time.Sleep(5 * time.Second)
		for i := range shards {
			if p := n.send(allocate(l.disk.nameIn(i)))[0]; p.wait() != "1#1" {
				t.Errorf("while the grant runs: %s", result(p.op))
			}
		}
		time.Sleep(logGrant)
		late := n.send(allocate(l.disk.nameIn(0)), allocate(l.disk.nameIn(1)))
		status := n.send(&nonce.Op{Kind: nonce.KindStatus, Signer: l.disk.nameIn(2)})[0]
		time.Sleep(time.Second)
		if late[0].answered() || late[1].answered() || status.answered() {
			t.Error("it is told by the log alone after the end of the grant")
		}
		l.disk.onBefore(nil)
		for _, p := range late {
			if p.wait() != "2#1" {
				t.Errorf("when the store is back: %s", result(p.op))
			}
		}
		status.wait()
	})
}
