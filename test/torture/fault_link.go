//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// forwarded is a client at w1 whose signer nobody else uses, and w2 owns.
type forwarded struct {
	*worker
	signer string
}

// clientAcross makes one, of a number that no other client has, and waits until its signer is where it should be. The caller must leave.
func (b *breaker) clientAcross(ctx context.Context) (*forwarded, error) {
	w := &forwarded{b.newWorker(b.Clients+100, b.rnd.Uint64()), "signer-across"}
	err := tries(ctx, startTimeout, 5*poll, func(ctx context.Context) error {
		w.ask(ctx, 1)
		var owner string
		err := b.db.QueryRow(ctx, `UPDATE shard SET pinned_node = $2 WHERE shard_id = (SELECT shard_id FROM signer WHERE signer = $1)
			RETURNING owner_node`, w.signer, b.nodes[1].id).Scan(&owner)
		if err == nil && owner != b.nodes[1].id {
			err = errors.New("it is not at its node yet")
		}
		return err
	})
	return w, err
}

// leave hands in what the client wrote down.
func (w *forwarded) leave() {
	w.worker.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.h.Calls = append(w.h.Calls, w.calls...)
}

// ask allocates so often, one behind the other, and uses what it is given: new nonces tell the order in which they were handed out.
func (w *forwarded) ask(ctx context.Context, times int) {
	calls := make([]history.Call, times)
	for i := range calls {
		calls[i] = history.Call{Kind: history.Allocate, Signer: w.signer, Count: 1, HoldMs: holdTTL.Milliseconds()}
	}
	done, _, _ := w.do(ctx, w.nodes[0], false, calls...)
	w.got(done...)
	var marks []history.Call
	for _, m := range w.open {
		marks = append(marks, w.used(m))
	}
	w.open = w.open[:0]
	w.do(ctx, w.nodes[0], false, marks...)
}

// fenceWhilePipelined has the owner of a signer find itself fenced, and take the shard again at once, while another node sends it one
// request of a client after the other and hears late what was sent back.
func fenceWhilePipelined(ctx context.Context, b *breaker) error {
	w, err := b.clientAcross(ctx)
	defer w.leave()
	owner := b.nodes[1].net
	owner.DelayReplies(30 * poll)
	owner.Drop() // connections that are made now are slow
	b.note("what %s says arrives late, and a shard of it is given back in its name", b.nodes[1].id)
	w.pace = poll / 2
	for times := 0; times < 8 && err == nil && ctx.Err() == nil; times++ {
		again := make(chan error, 1)
		go func() {
			lasts(ctx, 10*poll)
			again <- b.exec(ctx, fmt.Sprintf(`UPDATE shard SET owner_node = '', owner_incarnation = 0, fencing_token = fencing_token + 1
				WHERE shard_id = (SELECT shard_id FROM signer WHERE signer = '%s')`, w.signer))
		}()
		w.ask(ctx, 40)
		err = <-again
	}
	owner.DelayReplies(0)
	owner.Drop()
	return errors.Join(err, b.exec(context.WithoutCancel(ctx), `UPDATE shard SET pinned_node = ''`))
}

// lateLink keeps what a node sends over its link until the node has given the link up, asked again over another one, and sent what its
// client asked next: a hold that ends sooner and then later. Then what was kept arrives: done again, it would end the hold too soon.
func lateLink(ctx context.Context, b *breaker) error {
	w, err := b.clientAcross(ctx)
	defer w.leave()
	for times := 0; times < 3 && err == nil && ctx.Err() == nil; times++ {
		call := history.Call{Kind: history.Allocate, Signer: w.signer, Count: 1, HoldMs: maxHold.Milliseconds()}
		done, _, _ := w.do(ctx, w.nodes[0], false, call)
		if len(done) == 0 || done[0].Outcome != history.Happened {
			continue
		}
		held := &w.calls[len(w.calls)-1]
		giveUp, deliver := b.nodes[1].net.Strand("GET /node ")
		given := time.AfterFunc(5*poll, giveUp)
		b.note("the links to %s are given up, and what was sent over them arrives late", b.nodes[1].id)
		w.extend(held, holdTTL)
		told := false
		for tries := 0; tries < 25 && !told; tries++ { // until there is another link
			lasts(ctx, poll)
			told = w.extend(held, maxHold)
		}
		given.Stop()
		giveUp()
		deliver()
		b.note("it arrives; was nonce %d extended: %v", held.Nonces[0].Nonce, told)
		b.repeat(ctx, maxHold+grace-10*poll, func() time.Duration {
			w.ask(ctx, 1)
			return 10 * poll
		})
	}
	return errors.Join(err, b.exec(context.WithoutCancel(ctx), `UPDATE shard SET pinned_node = ''`))
}

// extend gives a hold a new deadline, and writes down the earliest that it can have then.
func (w *forwarded) extend(held *history.Call, hold time.Duration) (told bool) {
	until := func(at int64) { held.HoldMs, held.HeldUntil = held.HoldMs+at-held.HeldUntil, at }
	until(min(held.HeldUntil, time.Now().Add(hold).UnixMilli()))
	conn := w.conns[w.nodes[0]]
	if conn.Conn == nil {
		return false
	}
	w.sent++
	var extended wire.ExtendResult
	err := conn.Request(w.sent, wire.MethodExtend, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"holdMs":%d}`,
		w.signer, held.Nonces[0].Nonce, held.Nonces[0].Attempt, hold.Milliseconds()))
	if err == nil {
		var r *peer.Reply
		if r, err = conn.Read(); err == nil && r.Error == nil {
			err = wire.Unmarshal(r.Result, &extended)
			told = err == nil
		}
	}
	if err != nil {
		w.drop(w.nodes[0])
	}
	if told {
		until(time.Time(extended.HeldUntil).UnixMilli())
	}
	return told
}
