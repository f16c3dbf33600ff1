//go:build unix

package sqlite

import (
	"fmt"
	"math/rand/v2"
	"time"

	"noncegate/test/lab/history"
)

// client works on a few signers and records what it is told. It lives through all
// rounds of a history; one goroutine has it at a time.
type client struct {
	number   int
	seed     uint64
	chance   *rand.Rand
	calls    []call
	holds    []hold         // it has and has not marked
	past     []hold         // it has marked
	asked    []history.Call // allocates with a request id
	unknowns []history.Call // of unknown outcome, to be asked again after the crash
	made     int
}

// hold is one nonce that the client was given.
type hold struct {
	signer string
	history.Given
}

// signers are what all clients work on, the first more than the others.
var signers = []string{"hot", "a", "b", "c"}

// maxKept bounds what a client remembers of each kind.
const maxKept = 64

func newClient(number int, seed uint64) *client {
	return &client{number: number, seed: seed, chance: rand.New(rand.NewPCG(seed, uint64(number)))}
}

// work asks for one thing after the other until the connection ends or stop is
// closed.
func (c *client) work(p *session, stop <-chan struct{}) {
	unknowns := c.unknowns
	c.unknowns = nil
	for {
		select {
		case <-stop:
			c.unknowns = append(c.unknowns, unknowns...)
			return
		default:
		}
		var next history.Call
		if len(unknowns) > 0 {
			next, unknowns = unknowns[0], unknowns[1:]
		} else {
			next = c.next()
		}
		done, err := p.do(next)
		c.note(next, &done)
		if err != nil {
			c.unknowns = append(c.unknowns, unknowns...)
			return
		}
		if reason := word(done.Reason); reason == "unavailable" || reason == "draining" {
			select { // then it closes, and too many refusals would only fill the history
			case <-time.After(20 * time.Millisecond):
			case <-stop:
			}
		}
	}
}

// note keeps a call and what follows from it.
func (c *client) note(asked history.Call, done *call) {
	c.calls = append(c.calls, *done)
	switch {
	case done.Outcome == history.Unknown && len(c.unknowns) < maxKept:
		if asked.Kind != history.Allocate || asked.RequestID != "" {
			c.unknowns = append(c.unknowns, asked)
		}
	case done.Outcome == history.Happened && asked.Kind == history.Allocate:
		for _, g := range done.Nonces {
			c.holds = append(c.holds, hold{asked.Signer, g})
		}
		if asked.RequestID != "" {
			c.asked = append(c.asked, asked)
		}
	}
	c.holds, c.asked, c.past = newest(c.holds), newest(c.asked), newest(c.past)
}

func newest[T any](all []T) []T { return all[max(0, len(all)-maxKept):] }

// next draws what to ask for.
func (c *client) next() history.Call {
	r := c.chance
	switch n := r.IntN(100); {
	case n < 22 && len(c.holds) > 0:
		return c.used(c.take())
	case n < 36 && len(c.holds) > 0:
		return c.freed(c.take())
	case n < 39 && len(c.past) > 0: // late, and as likely as not something else than before
		h := c.past[r.IntN(len(c.past))]
		if r.IntN(2) == 0 {
			return c.used(h)
		}
		return c.freed(h)
	case n < 45 && len(c.asked) > 0:
		return c.asked[r.IntN(len(c.asked))]
	case n < 50:
		return history.Call{Kind: history.Status, Signer: c.signer()}
	}
	call := history.Call{Kind: history.Allocate, Signer: c.signer(), Count: 1, HoldMs: 60_000}
	if r.IntN(8) == 0 {
		call.Count = 2 + r.IntN(2)
	}
	if r.IntN(3) == 0 {
		call.HoldMs = 1000
	}
	if r.IntN(2) == 0 {
		c.made++
		call.RequestID = fmt.Sprintf("%d-%d", c.number, c.made)
	}
	return call
}

func (c *client) signer() string {
	if c.chance.IntN(2) == 0 {
		return signers[0]
	}
	return signers[c.chance.IntN(len(signers))]
}

// take takes one of the holds, to be marked.
func (c *client) take() hold {
	i := c.chance.IntN(len(c.holds))
	h := c.holds[i]
	c.holds = append(c.holds[:i:i], c.holds[i+1:]...)
	c.past = append(c.past, h)
	return h
}

// used is a mark whose transaction hash nobody else uses, and that this client
// uses again for the same hand-out.
func (c *client) used(h hold) history.Call {
	hash := fmt.Sprintf("0x%08x%08x%016x%016x%016x", c.number, len(h.signer)<<8|int(h.signer[0]), h.Nonce, h.Attempt, c.seed)
	return history.Call{Kind: history.MarkUsed, Signer: h.signer, Nonce: h.Nonce, Attempt: h.Attempt, TxHash: hash}
}

func (c *client) freed(h hold) history.Call {
	return history.Call{Kind: history.MarkRecyclable, Signer: h.signer, Nonce: h.Nonce, Attempt: h.Attempt, Why: "not sent"}
}
