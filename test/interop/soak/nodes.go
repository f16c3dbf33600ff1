package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// sendTimeout is how long a worker waits for a node.
const sendTimeout = 2 * time.Second

// outcome is what a worker knows after it has given a transaction to nodes.
type outcome int

const (
	accepted outcome = iota // it is in a pool
	passed                  // a node says that its nonce is used, or has another transaction of it
	refused                 // it was not taken, and a node that says this does not forward
	unknown                 // anything may have happened
)

// nodes are the chain's nodes as workers reach them: through the proxies.
type nodes []*rpc.Client

func dialNodes(h *host, urls ...string) nodes {
	var ns nodes
	for _, url := range urls {
		client, err := rpc.DialOptions(h.ctx, url, rpc.WithHTTPClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}}))
		if err != nil {
			h.Fatalf("%s: %v", url, err)
		}
		h.Cleanup(client.Close)
		ns = append(ns, client)
	}
	return ns
}

// send gives a transaction to one node, and to the next where that refused it.
func (ns nodes) send(ctx context.Context, tx *types.Transaction) outcome {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err) // it was signed here
	}
	first := rand.IntN(len(ns))
	for i := range ns {
		if out := sendRaw(ctx, ns[(first+i)%len(ns)], raw); out != refused {
			return out
		}
	}
	return refused
}

func (ns nodes) sendTwice(ctx context.Context, tx *types.Transaction) {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err)
	}
	for _, n := range ns {
		sendRaw(ctx, n, raw)
	}
}

func sendRaw(ctx context.Context, node *rpc.Client, raw []byte) outcome {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	return judge(node.CallContext(ctx, new(common.Hash), "eth_sendRawTransaction", hexutil.Bytes(raw)))
}

// judge reads what a node answered, by its words where it has some.
func judge(err error) outcome {
	if err == nil {
		return accepted
	}
	if status, ok := errors.AsType[rpc.HTTPError](err); ok {
		if status.StatusCode == http.StatusTooManyRequests {
			return refused
		}
		return unknown
	}
	text := strings.ToLower(err.Error())
	for _, known := range []struct {
		words string
		out   outcome
	}{
		{"already known", accepted},
		{"nonce too low", passed},
		{"replacement transaction underpriced", passed},
		{"future transaction tries to replace pending", passed},
		{"rate limited", refused},
	} {
		if strings.Contains(text, known.words) {
			return known.out
		}
	}
	return unknown
}

func (o outcome) String() string {
	return [...]string{"accepted", "passed", "refused", "unknown"}[o]
}
