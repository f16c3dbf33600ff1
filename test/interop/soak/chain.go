package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/interop/chaintest"
)

// finalDepth is how far a block must be below the head until nothing replaces it here.
const finalDepth = 8

// count is how many nonces of an account are used, and how many of them for good.
type count struct{ latest, final uint64 }

// recount asks the node itself how far each account is.
func (s *soak) recount() error {
	fresh := make([]count, len(s.accounts))
	for i, a := range s.accounts {
		var latest, final hexutil.Uint64
		err := errors.Join(s.chain.Call(&latest, counts, a.Address, "latest"), s.chain.Call(&final, counts, a.Address, "finalized"))
		if err != nil {
			return fmt.Errorf("count of %v: %w", a.Address, err)
		}
		fresh[i] = count{uint64(latest), uint64(final)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = fresh
	return nil
}

// found is what the whole chain says: the nonces that each account has used, and how often each payment was executed.
type found struct {
	uses []map[uint64]bool
	paid map[uint64]int
}

// read reads the chain from its head to its beginning.
func (s *soak) read() (f found, err error) {
	f = found{make([]map[uint64]bool, len(s.accounts)), make(map[uint64]int)}
	for i := range f.uses {
		f.uses[i] = make(map[uint64]bool)
	}
	for n, _ := s.chain.Head(); ; n-- {
		var block *struct {
			Transactions []struct {
				From  common.Address
				Nonce hexutil.Uint64
				Input hexutil.Bytes
			}
		}
		if err := s.chain.Call(&block, "eth_getBlockByNumber", hexutil.EncodeUint64(n), true); err != nil || block == nil {
			return f, fmt.Errorf("read block %d: %w", n, err)
		}
		for _, tx := range block.Transactions {
			if id, ok := paymentOf(tx.Input); ok {
				f.paid[id]++
			}
			if account, ok := s.byAddress[tx.From]; ok {
				f.uses[account][uint64(tx.Nonce)] = true
			}
		}
		if n == 0 {
			return f, nil
		}
	}
}

const payloadBegins = "payment "

func payload(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte(payloadBegins), id) }

func paymentOf(input []byte) (id uint64, ok bool) {
	number, ok := strings.CutPrefix(string(input), payloadBegins)
	if !ok || len(number) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(number)), true
}

// sendTimeout is how long a worker waits for a node.
const sendTimeout = 2 * time.Second

// outcome is what a worker knows after it has given a transaction to nodes.
type outcome string

const (
	accepted outcome = "accepted" // it is in a pool
	passed   outcome = "passed"   // a node says that its nonce is used, or has another transaction of it
	refused  outcome = "refused"  // it was not taken, and a node that says this does not forward
	unknown  outcome = "unknown"  // anything may have happened
)

// said is what the words of a node mean.
var said = map[string]outcome{
	"already known":                               accepted,
	"nonce too low":                               passed,
	"replacement transaction underpriced":         passed,
	"future transaction tries to replace pending": passed,
	"rate limited":                                refused,
	http.StatusText(http.StatusTooManyRequests):   refused,
}

// nodes are the chain's nodes as workers reach them: through the proxies.
type nodes []*rpc.Client

func dialNodes(h *host, proxies []*chaintest.Proxy) (ns nodes) {
	for _, p := range proxies {
		transport := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}
		client, err := rpc.DialOptions(h.ctx, p.URL(), rpc.WithHTTPClient(&http.Client{Transport: transport}))
		h.must(err)
		h.Cleanup(client.Close)
		ns = append(ns, client)
	}
	return ns
}

// send gives a transaction to one node, and to the next where that refused it; with all to each, whatever they say.
func (ns nodes) send(ctx context.Context, tx *types.Transaction, all bool) (out outcome) {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err) // it was signed here
	}
	first := rand.IntN(len(ns))
	for i := range ns {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		out = judge(ns[(first+i)%len(ns)].CallContext(ctx, new(common.Hash), send, hexutil.Bytes(raw)))
		cancel()
		if out != refused && !all {
			return out
		}
	}
	return out
}

// judge reads what a node answered, by its words where it has some.
func judge(err error) outcome {
	if err == nil {
		return accepted
	}
	for words, out := range said {
		if strings.Contains(strings.ToLower(err.Error()), strings.ToLower(words)) {
			return out
		}
	}
	return unknown
}
