package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// style is how a payment takes its nonce.
type style int

const (
	recordFirst style = iota // record the hash, then send
	markAfter                // send, then mark
	within                   // client.WithNonce, marked afterwards
	withinFirst              // client.WithNonce with RecordFirst
)

// mishap is what goes wrong with the worker itself.
type mishap int

const (
	fine mishap = iota
	crashTaken
	crashWritten
	crashRecorded
	crashSent
	late      // is done with signing when the hold is over
	slow      // needs longer than the hold, and says so
	twice     // sends to all nodes, twice
	bump      // replaces with higher fees
	forget    // does not mark
	signFails // cannot sign
)

// names of mishaps, for the report.
var mishapNames = [...]string{"none", "crash before signing", "crash before recording", "crash before sending", "crash before marking",
	"late", "slow, extended", "sent twice", "replaced", "not marked", "not signed"}

// shares are how many of 1000 payments meet each mishap.
var shares = [...]int{crashTaken: 5, crashWritten: 5, crashRecorded: 5, crashSent: 5,
	late: 40, slow: 15, twice: 60, bump: 60, forget: 60, signFails: 30}

// plan is what a payment does in one run.
type plan struct {
	style     style
	named     bool // with a request id
	requestID string
	mishap    mishap
	pause     time.Duration // of late and slow, beyond the hold
}

// planOf draws what a payment does: how it takes its nonce for each generation, what goes
// wrong for each run.
func planOf(seed, id uint64, generation, runs int, calm bool) plan {
	r := rand.New(rand.NewPCG(seed, id<<16|uint64(generation)))
	p := plan{named: r.IntN(2) == 0, requestID: fmt.Sprintf("payment-%d-%d", id, generation)}
	switch n := r.IntN(100); {
	case n < 45:
		p.style = recordFirst
	case n < 75:
		p.style = markAfter
	case n < 88:
		p.style = within
	default:
		p.style = withinFirst
	}
	if calm {
		return p
	}
	r = rand.New(rand.NewPCG(seed+1, id<<16|uint64(runs)))
	n := r.IntN(1000)
	for m, share := range shares {
		n -= share
		if n < 0 {
			p.mishap = mishap(m)
			break
		}
	}
	p.pause = time.Duration(500+r.IntN(3000)) * time.Millisecond
	return p
}
