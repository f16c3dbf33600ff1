//go:build unix

package bench

import (
	"errors"
	"sync"
	"time"

	"noncegate/internal/testenv/fakenode"
)

// loadChain is the chain that the load's accounts are of, and chainNumber its number.
const (
	loadChain   = "eip155:1"
	chainNumber = 1
)

// chainFlags are the settings of a gateway that asks a chain, beside those of all: what is
// measured takes more nonces than the nodes of a chain would.
var chainFlags = []string{"--chain-window", "1000000000"}

// blockEvery is the time between the blocks of the chain, which are empty. It is that of
// several large chains; Ethereum's own is six times as long.
const blockEvery = 2 * time.Second

// chainStore adds to a store a chain with two nodes, which share the machine. When there
// is an error, nothing is left of either.
func chainStore(st store) (store, error) {
	chain := fakenode.NewChain(time.Now(), blockEvery)
	var nodes []*fakenode.Server
	for range 2 {
		n, err := fakenode.Serve(chain, chainNumber)
		if err != nil {
			return store{}, errors.Join(err, st.release())
		}
		n.SetFinal(n.Head())
		nodes, st = append(nodes, n), st.and(n.Close)
		st.nodes = append(st.nodes, n.URL())
	}
	stop := make(chan struct{})
	var works sync.WaitGroup
	works.Go(func() {
		tick := time.NewTicker(blockEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			head := chain.Extend(nodes[0].Head())
			for _, n := range nodes {
				n.SetHead(head)
			}
		}
	})
	return st.and(func() error {
		close(stop)
		works.Wait()
		return nil
	}), nil
}
