package service_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// TestOrderIsKeptWhileShardsMove: three nodes
// that forget all but two of six signers, take three ops at a time, and run ops in
// their callers' goroutines, while shards move, links lose answers and owners lose their shards.
// What one caller is given of a signer ascends, a read sees what came before it, no
// attempt comes twice, and everything is answered.
func TestOrderIsKeptWhileShardsMove(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, three, func(t *testing.T, c *cluster) {
				m := &mixing{cluster: c, t: t, random: rand.New(rand.NewPCG(seed, 7)), seen: map[string]string{}}
				for range 40 {
					m.shuffle()
					for name, ps := range m.ask() {
						m.check(name, ps)
					}
					pass(time.Duration(m.random.IntN(40)) * time.Millisecond)
				}
				if m.served < 1000 {
					t.Errorf("only %d were served", m.served)
				}
			}, func(cfg *service.Config) {
				cfg.MaxSigners, cfg.MaxBatch, cfg.QueueCapacity, cfg.Reject = 2, 3, 8, nonce.CallerRuns
				cfg.WatchEvery, cfg.Rules.MaxLive = 10*time.Millisecond, nonce.MaxLive
			})
		})
	}
}

type mixing struct {
	*cluster
	t      *testing.T
	random *rand.Rand
	seen   map[string]string // attempt to node
	served int
}

func (m *mixing) signer() string { return fmt.Sprint("s", m.random.IntN(6)) }

// shuffle changes who should have which shard and who is away, and takes a shard away.
func (m *mixing) shuffle() {
	for shard := range shards {
		if err := m.disk.Pin(m.t.Context(), shard, three[m.random.IntN(3)]); err != nil {
			m.t.Fatal(err)
		}
	}
	m.set(func() {
		clear(m.away)
		m.away[three[m.random.IntN(3)]] = m.random.IntN(5) == 0
		m.lose = func() bool { return rand.IntN(25) == 0 }
	})
	if m.random.IntN(3) == 0 {
		m.disk.takeAway(m.signer())
	}
}

// ask sends 18 ops at each node.
func (m *mixing) ask() map[string][]*pending {
	all := map[string][]*pending{}
	for _, name := range three {
		var ops []*noncetest.Op
		for range 18 {
			if s := m.signer(); m.random.IntN(5) == 0 {
				ops = append(ops, parse(m.t, "status signer="+s))
			} else {
				ops = append(ops, allocate(s))
			}
		}
		all[name] = m.nodes[name].send(ops...)
	}
	return all
}

// check judges what one node's caller was answered.
func (m *mixing) check(name string, ps []*pending) {
	next := map[string]int64{} // by signer: one above what was given last
	for _, p := range ps {
		got := p.wait()
		s := p.op.Signer
		switch {
		case p.op.Err != nil:
			continue
		case p.op.Kind == nonce.KindStatus:
			if p.op.Summary.Next < next[s] {
				m.t.Errorf("%s: a read sees next %d of %s after %d was given", name, p.op.Summary.Next, s, next[s]-1)
			}
			continue
		}
		m.served++
		if was := m.seen[s+" "+got]; was != "" {
			m.t.Errorf("%s of %s was given by %s and by %s", got, s, was, name)
		}
		m.seen[s+" "+got] = name
		if n := p.op.Nonces[0]; n < next[s] {
			m.t.Errorf("%s: %d of %s was given after %d", name, n, s, next[s]-1)
		} else {
			next[s] = n + 1
		}
	}
}
