//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"noncegate/test/lab/history"
)

// failSigners is how many signers a measurement asks for, one client each.
const failSigners = 24

// Failover measures for how long signers are not served: when the node that owns
// them is killed, when it is drained, and when PostgreSQL crashes. Each client asks
// for one signer of the two worker-queue nodes, at the other one as soon as one
// does not serve it, so its longest gap between two successes is what somebody who
// uses that signer waits. It writes the table.
func Failover(ctx context.Context, o Options, w io.Writer) error {
	fmt.Fprintf(w, "lease %v; longest time without a success, of the signers that the node owned\n", leaseTTL)
	for _, s := range []struct {
		name string
		do   func(ctx context.Context, c *cluster, victim *node) error
	}{
		{"kill -9 of the owner", func(ctx context.Context, _ *cluster, victim *node) error {
			victim.end(syscall.SIGKILL)
			lasts(ctx, 3*leaseTTL)
			return victim.start(ctx)
		}},
		{"the owner is drained", func(ctx context.Context, _ *cluster, victim *node) error {
			victim.end(syscall.SIGTERM)
			lasts(ctx, leaseTTL)
			return victim.start(ctx)
		}},
		{"PostgreSQL crashes, and is away for 2s", func(ctx context.Context, c *cluster, _ *node) error {
			if err := c.pg.Kill(); err != nil {
				return err
			}
			lasts(ctx, 2*time.Second)
			return c.pg.Restart()
		}},
	} {
		if err := failover(ctx, o, s.name, s.do, w); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func failover(ctx context.Context, o Options, name string, do func(context.Context, *cluster, *node) error, w io.Writer) error {
	c, err := startCluster(ctx, o)
	if err != nil {
		return err
	}
	defer c.close()
	began := time.Now()
	clients := make([]*client, failSigners)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		clients[i] = newClient(i, began, c.nodes[:2], rand.New(rand.NewPCG(1, uint64(i))))
		all.Go(func() { clients[i].keepAsking(ctx, fmt.Sprintf("signer-%02d", i), stop) })
	}
	lasts(ctx, 2*time.Second)
	victim, owned, err := c.owner(ctx)
	broken := time.Since(began)
	if err == nil {
		err = do(ctx, c, victim)
	}
	healed := time.Since(began)
	lasts(ctx, 3*leaseTTL)
	close(stop)
	all.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	writeGaps(w, name, clients, owned, broken, healed)
	return nil
}

// owner is the worker-queue node that owns the most signers, and those.
func (c *cluster) owner(ctx context.Context) (*node, []string, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(ctx)
	samples, err := readSamples(ctx, conn, 0)
	if err != nil {
		return nil, nil, err
	}
	owned := make(map[string][]string)
	for _, s := range samples {
		owned[s.Owner] = append(owned[s.Owner], s.Signer)
	}
	n := c.nodes[0]
	if len(owned[c.nodes[1].id]) > len(owned[n.id]) {
		n = c.nodes[1]
	}
	return n, owned[n.id], nil
}

// keepAsking allocates until stop is closed, at the next node whenever one does not
// serve it, and uses what it got.
func (c *client) keepAsking(ctx context.Context, signer string, stop <-chan struct{}) {
	defer c.close()
	at := 0
	for {
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-stop:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		done, _, err := c.do(ctx, c.nodes[at%len(c.nodes)], false, history.Call{Kind: history.Allocate, Signer: signer, Count: 1, HoldMs: holdTTL.Milliseconds()})
		if err != nil || done[0].Outcome != history.Happened {
			at++
		}
	}
}

// writeGaps writes one row: the gaps of the signers that the victim owned, how soon
// after the end of the fault the last of all signers was served, and what was said
// meanwhile.
func writeGaps(w io.Writer, name string, clients []*client, owned []string, broken, healed time.Duration) {
	var gaps []time.Duration
	var served, slowest time.Duration
	reasons := make(map[string]int)
	for _, c := range clients {
		last, gap, back := time.Duration(0), time.Duration(0), time.Duration(0)
		for _, call := range c.calls {
			if call.Outcome != history.Happened {
				reasons[call.Reason]++
				slowest = max(slowest, call.End-call.Start)
				continue
			}
			if call.End > broken && last > 0 {
				gap = max(gap, call.End-last)
			}
			if call.End > healed && back == 0 {
				back = call.End - healed
			}
			last = call.End
		}
		served = max(served, back)
		if slices.Contains(owned, c.calls[0].Signer) {
			gaps = append(gaps, gap)
		}
	}
	slices.Sort(gaps)
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Fprintf(w, "%s: %d signers, median %v, longest %v; all served %v after it was healed; slowest refusal %v; %s\n",
		name, len(gaps), ms(gaps[len(gaps)/2]), ms(gaps[len(gaps)-1]), ms(served), ms(slowest), strings.TrimSpace(counts(reasons)))
}
