package performance

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/service"
)

// maxRehearsals bounds the batches that wait to be written into the logs of a rehearsal.
const maxRehearsals = 64

// rehearsal writes into the logs what the store has answered, behind the answers, before
// shards get the performance engine. It delays nothing: what it has no room for is left out, and
// what fails only begins the rehearsal of a shard again. It has logs of its own beside those that
// serve, at the same server. The fields below missed belong to the goroutine of Engine.run.
type rehearsal struct {
	*Engine
	runs     atomic.Bool
	batches  chan []rehearsed
	progress atomic.Pointer[[]Rehearsing]
	missed   atomic.Int64 // batches that there was no room for

	seen   int64 // of missed
	change int64 // of the goal
	shards map[int]*rehearsing
}

// rehearsed is a change of a signer that the store has.
type rehearsed struct {
	term   lease.ShardTerm
	at     time.Time
	change nonce.LogChange
}

// rehearsing is a shard of this node. Its fence is of a log of its own, nonce.Rehearsal.
type rehearsing struct {
	term   int64 // of the shard
	begins int64
	fence  nonce.LogFence
	begun  bool
	since  time.Time // since when it has kept up
	why    error     // it last began again
	noted  bool
}

// Rehearsing is how far the rehearsal of a shard is.
type Rehearsing struct {
	Shard   int
	KeptUp  time.Duration // since it began, or began again
	Done    bool
	Trouble string // why it began again last; "": it did not
}

// Committed implements service.Committer: it keeps what a part changes for the rehearsal, if one runs.
func (c *committer) Committed(p service.Part) {
	if c.rehearsal.runs.Load() {
		c.rehearsed = append(c.rehearsed, rehearsed{p.Shard().Term(), time.Now(), changeOf(p)})
	}
}

// handRehearsed hands on what was kept in a batch.
func (c *committer) handRehearsed() {
	if len(c.rehearsed) == 0 {
		return
	}
	select {
	case c.rehearsal.batches <- c.rehearsed:
	default:
		c.rehearsal.missed.Add(1)
	}
	c.rehearsed = nil
}

var (
	errRehearsalFull   = errors.New("the log was slower than the store")
	errRehearsalBehind = errors.New("the log was behind the store")
)

// restart has a shard begin again.
func (sh *rehearsing) restart(why error) { sh.since, sh.why, sh.begun = time.Now(), why, false }

// check begins and ends rehearsals, compares the fence of each shard, so that it is known of an
// idle one as well, and notes which have kept up for long enough.
func (r *rehearsal) check() {
	goal := r.wanted()
	on := goal.Performance && goal.Rehearse > 0 && !r.allRehearsed(&goal)
	r.runs.Store(on)
	if !on || goal.Change != r.change {
		r.trimAll()
		r.change, r.shards = goal.Change, make(map[int]*rehearsing)
		r.progress.Store(nil)
	}
	if !on {
		return
	}
	missed, reached := r.missed.Load(), true
	for _, of := range r.Engine.shards {
		term := of.Token()
		sh := r.shards[of.ID()]
		if term == 0 || of.Row().Performance {
			delete(r.shards, of.ID())
			continue
		}
		if sh == nil || sh.term != term {
			sh = &rehearsing{term: term, since: time.Now()}
			r.shards[of.ID()] = sh
		} else if missed != r.seen {
			sh.restart(errRehearsalFull)
		}
		reached = reached && r.begin(of.ID(), sh) // one call that fails is enough
	}
	r.seen = missed
	r.append(nil)
	r.note(&goal)
	r.trimAll()
}

// begin makes the log of a rehearsal empty, under a token of its own, so that what comes late of
// the time before is refused.
func (r *rehearsal) begin(shard int, sh *rehearsing) bool {
	if sh.begun {
		return true
	}
	ctx, cancel := r.logTime()
	defer cancel()
	sh.begins++
	fence, err := r.cfg.Log.Begin(ctx, nonce.Rehearsal(shard), sh.term<<20+sh.begins)
	if err != nil {
		sh.restart(err)
		return false
	}
	sh.fence, sh.begun = fence, true
	return true
}

// write adds changes to the logs, those of a shard as one record.
func (r *rehearsal) write(batch []rehearsed) {
	records := make(map[int]*nonce.LogRecord)
	for i := range batch {
		c := &batch[i]
		id := c.term.Shard
		sh := r.shards[id]
		switch {
		case sh == nil || !sh.begun || sh.term != c.term.Token: // it begins after this
		case time.Since(c.at) > r.cfg.ShipSLA:
			sh.restart(errRehearsalBehind)
		case records[id] == nil:
			records[id] = &nonce.LogRecord{Shard: id, Token: sh.fence.Token, Seq: sh.fence.Head + 1, Changes: []nonce.LogChange{c.change}}
		default:
			records[id].Changes = append(records[id].Changes, c.change)
		}
	}
	r.append(records)
}

// append adds records, or, without, compares the fences of all shards.
func (r *rehearsal) append(records map[int]*nonce.LogRecord) {
	var items []nonce.LogAppend
	var of []*rehearsing
	for id, sh := range r.shards {
		if sh.begun && (records == nil || records[id] != nil) {
			items, of = append(items, nonce.LogAppend{Fence: sh.fence, Record: records[id]}), append(of, sh)
		}
	}
	if len(items) == 0 {
		return
	}
	ctx, cancel := r.logTime()
	defer cancel()
	for i, err := range r.cfg.Log.Append(ctx, items) {
		if err != nil {
			of[i].restart(err)
		} else if items[i].Record != nil {
			of[i].fence.Head++
		}
	}
}

// note says of shards in the store that they have kept up, and shows how far each is.
func (r *rehearsal) note(goal *nonce.EngineGoal) {
	var terms []lease.ShardTerm
	var all []Rehearsing
	for id, sh := range r.shards {
		out := Rehearsing{Shard: id, KeptUp: time.Since(sh.since)}
		if out.Done = sh.begun && out.KeptUp >= goal.Rehearse; out.Done && !sh.noted {
			terms = append(terms, lease.ShardTerm{Shard: id, Token: sh.term})
		}
		if sh.why != nil {
			out.Trouble = sh.why.Error()
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b Rehearsing) int { return a.Shard - b.Shard })
	r.progress.Store(&all)
	if len(terms) == 0 {
		return
	}
	ctx, cancel := r.svc.Timeout()
	defer cancel()
	if err := r.cfg.Store.Rehearsed(ctx, r.svc.Holder(), terms, goal.Change); err != nil {
		r.log.Debug("a rehearsal was not noted", "error", err)
		return
	}
	for _, t := range terms {
		r.shards[t.Shard].noted = true
	}
}

// trimAll takes out of the logs what was written: the rows have it.
func (r *rehearsal) trimAll() {
	var fences []nonce.LogFence
	for _, sh := range r.shards {
		if sh.begun {
			fences = append(fences, sh.fence)
		}
	}
	r.trim(fences)
}
