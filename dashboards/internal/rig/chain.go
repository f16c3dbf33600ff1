//go:build unix

package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"noncegate/client"
	"noncegate/internal/testenv/fakenode"
)

// The chain that gateways of a cluster ask.
const (
	chainNumber = 1337
	chainID     = "eip155:1337"
	blockEvery  = 250 * time.Millisecond
	finalAfter  = 8 // blocks
	chainFlag   = "--chain-poll=100ms"
)

// Chain is a chain with one node, which gateways ask over HTTP. A block every 250 ms
// takes what was sent to it meanwhile, of each account in the order of its nonces.
type Chain struct {
	node   *fakenode.Server
	chain  *fakenode.Chain
	cancel context.CancelFunc
	works  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	pool   []fakenode.Tx
	used   map[string]int64  // nonces, by account
	lose   bool              // the next transaction
	lost   []fakenode.Tx     // what was sent, and is in no pool
	blocks []*fakenode.Block // the last ones, oldest first
	sent   int
}

// StartChain starts the chain and its node on a free port of 127.0.0.1. Stop ends both.
func StartChain() (*Chain, error) {
	c := &Chain{chain: fakenode.NewChain(time.Now(), blockEvery), used: make(map[string]int64)}
	var err error
	if c.node, err = fakenode.Serve(c.chain, chainNumber); err != nil {
		return nil, err
	}
	c.node.SetFinal(c.node.Head())
	c.blocks = []*fakenode.Block{c.node.Head()}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.works.Go(func() {
		for wait(ctx, blockEvery) {
			c.mine()
		}
	})
	return c, nil
}

// Stop ends the chain and its node, and waits for them.
func (c *Chain) Stop() error {
	c.cancel()
	c.works.Wait()
	return c.node.Close()
}

// flags are the settings of a gateway that asks the node.
func (c *Chain) flags() []string {
	return []string{"--chain=" + chainID + "=" + c.node.URL(), chainFlag}
}

// mine makes a block of what is in the pool, and can be mined.
func (c *Chain) mine() {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.pool, func(a, b fakenode.Tx) int { return cmp.Compare(a.Nonce, b.Nonce) })
	var ready, rest []fakenode.Tx
	for _, tx := range c.pool {
		if tx.Nonce != c.used[tx.From] {
			rest = append(rest, tx)
			continue
		}
		c.used[tx.From]++
		ready = append(ready, tx)
	}
	c.pool = rest
	head := c.chain.Extend(c.node.Head(), ready...)
	c.blocks = append(c.blocks, head)
	if len(c.blocks) > finalAfter {
		c.blocks = c.blocks[1:]
	}
	c.node.SetPool(c.pool...)
	c.node.SetHead(head)
	c.node.SetFinal(c.blocks[0])
}

// send puts a transaction into the pool of the node, and returns its hash.
func (c *Chain) send(account int, nonce int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	tx := fakenode.Tx{From: fakenode.Account(account), Nonce: nonce, Hash: fakenode.TxHash(c.sent)}
	if c.lose {
		c.lose, c.lost = false, append(c.lost, tx)
		return tx.Hash.String()
	}
	c.pool = append(c.pool, tx)
	c.node.SetPool(c.pool...)
	return tx.Hash.String()
}

// Lose has the next transaction vanish, as one that a node accepts and drops: it blocks
// those of its account until it is found.
func (c *Chain) Lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose = true
}

// Find puts what was lost into the pool.
func (c *Chain) Find() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool, c.lost = append(c.pool, c.lost...), nil
	c.node.SetPool(c.pool...)
}

// accounts are those whose transactions a load sends. Each of them has one client, so
// that its transactions come in order; sendEvery is between two of them.
const (
	accounts  = 4
	sendEvery = 100 * time.Millisecond
)

// sendTransactions takes nonces of one account and sends a transaction with each. What
// the window of the chain refuses is tried again; a nonce of which nobody knows, as after
// a loss of Redis, is left to its hold.
func (l *Load) sendTransactions(ctx context.Context, account int) error {
	c, err := client.Dial(ctx, l.url, client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	signer := fmt.Sprintf("%s:%s", chainID, fakenode.Account(account))
	for wait(ctx, sendEvery) {
		err := c.WithNonce(ctx, signer, client.NonceOptions{}, func(_ context.Context, held *client.HeldNonce) (string, error) {
			return l.cfg.Chain.send(account, held.Nonce), nil
		})
		_, unknown := errors.AsType[*client.UnknownOutcomeError](err)
		if err != nil && !unknown && !errors.Is(err, client.ErrHoldLimit) {
			return err
		}
	}
	return nil
}

// askNode asks the node by way of the gateway, as a wallet back end does that changes
// nothing but its URL: what is passed on, what the gateway answers itself, and what it
// refuses.
func (l *Load) askNode(ctx context.Context) error {
	at, err := url.Parse(l.url)
	if err != nil {
		return err
	}
	at.Scheme, at.Path = "http", fmt.Sprintf("/eth/%d", chainNumber)
	questions := fmt.Sprintf(`[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]},`+
		`{"jsonrpc":"2.0","id":2,"method":"eth_getTransactionCount","params":[%q,"pending"]},`+
		`{"jsonrpc":"2.0","id":3,"method":"eth_sendTransaction","params":[{}]}]`, fakenode.Account(1))
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	for wait(ctx, sendEvery) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(questions))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", at, response.Status)
		}
	}
	return nil
}
