package performance

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/service"
)

// Config are the settings of an Engine. Log and Store are required.
type Config struct {
	Log   nonce.ShardLog
	Store nonce.LogStore
	// Grant is how long a log hands out while the store is away, at most.
	Grant time.Duration
	// ShipEvery is between two shipments; while answers wait for one, it is ShipSoon.
	ShipEvery, ShipSoon time.Duration
	// ShipSLA is how far the rows may be behind before hand-outs wait for them too, unless the
	// store is away. Batches wait as long for what they read of the store.
	ShipSLA time.Duration
	// LostAfter is how long a log is out of reach, or not what was accepted, before it counts as
	// lost.
	LostAfter time.Duration
	// Timeout bounds one call of the log. Past it an append is unknown.
	Timeout time.Duration
	// MaxUnshipped bounds the changes of a worker that the rows do not have yet. Beyond it requests
	// are refused.
	MaxUnshipped int
	// Margin is added to what is in doubt after a loss, for clocks that part; 0: 2s.
	Margin time.Duration
}

func (c *Config) defaults() {
	c.Grant = cmp.Or(c.Grant, 45*time.Second)
	c.ShipEvery = cmp.Or(c.ShipEvery, 100*time.Millisecond)
	c.ShipSoon = cmp.Or(c.ShipSoon, 5*time.Millisecond)
	c.ShipSLA = cmp.Or(c.ShipSLA, 2*time.Second)
	c.LostAfter = cmp.Or(c.LostAfter, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	c.MaxUnshipped = cmp.Or(c.MaxUnshipped, 200_000)
	c.Margin = cmp.Or(c.Margin, 2*time.Second)
}

// Engine is the performance engine of one service.
type Engine struct {
	cfg    Config
	svc    service.Host
	log    *slog.Logger
	shards []*shard
	parts  []*committer // one a worker

	goal      atomic.Pointer[nonce.EngineGoal] // nil: not read yet
	trouble   atomic.Pointer[trouble]          // why the engine is to be left; nil: nothing
	reach     reach
	rehearsal rehearsal
	lost      atomic.Int64 // logs declared lost
}

var (
	_ service.Engine    = (*Engine)(nil)
	_ service.Committer = (*committer)(nil)
)

// New makes an engine for a service that is about to start. The error is a sentence.
func New(cfg Config) (*Engine, error) {
	cfg.defaults()
	switch {
	case cfg.Log == nil || cfg.Store == nil:
		return nil, errors.New("the performance engine needs a log and a store")
	case cfg.ShipSLA >= cfg.Grant:
		return nil, errors.New("how far the rows may be behind must be below the grant")
	}
	return &Engine{cfg: cfg, reach: reach{unseen: time.Now()}}, nil
}

// Attach implements service.Engine.
func (e *Engine) Attach(s service.Host, workers []service.Worker) []service.Committer {
	e.svc, e.log = s, s.Log()
	e.rehearsal = rehearsal{Engine: e, batches: make(chan []rehearsed, maxRehearsals)}
	for _, sh := range s.Shards() {
		e.shards = append(e.shards, &shard{Shard: sh})
	}
	all := make([]service.Committer, len(workers))
	for i, w := range workers {
		c := &committer{Engine: e, worker: w}
		c.shipper = shipper{committer: c, shipments: make(chan *shipment, 1)}
		for _, sh := range e.shards {
			if sh.Worker() == w.Index() {
				c.mine = append(c.mine, sh)
			}
		}
		e.parts, all[i] = append(e.parts, c), c
	}
	return all
}

// Goroutines implements service.Engine.
func (e *Engine) Goroutines() []func(<-chan struct{}) {
	all := []func(<-chan struct{}){e.run}
	for _, c := range e.parts {
		all = append(all, c.shipper.run)
	}
	return all
}

// run is the goroutine of what no batch does: it probes the server of the logs, and rehearses.
func (e *Engine) run(stop <-chan struct{}) {
	tick := time.NewTicker(e.svc.Config().WatchEvery)
	defer tick.Stop()
	for e.probe(); ; {
		select {
		case <-stop:
			return
		case batch := <-e.rehearsal.batches:
			e.rehearsal.write(batch)
		case <-tick.C:
			for _, c := range e.parts { // to see whether the store is silent
				c.worker.Wake()
			}
			e.probe()
			e.rehearsal.check()
		}
	}
}

// committer is the engine's part of a worker. But for shipper.arrived it belongs to the goroutine that runs a batch.
type committer struct {
	*Engine
	worker service.Worker
	mine   []*shard // the worker's, with any owner

	shipper   shipper
	storeAway bool // it does not answer, as far as logs have to do with it
	awaySince time.Time
	askAgain  time.Time // while it is away it is not asked before
	lastTried int       // the shard whose log was to be taken over last
	unshipped int       // changes that the rows do not have yet
	figures   atomic.Pointer[Figures]
	counted   time.Time // when they were
	rehearsed []rehearsed
}

// shard is a shard of the database, and what this node knows of its engine.
type shard struct {
	service.Shard
	log *shardLog // nil: the shard is not this node's, or has the reliable engine
	// What is kept over acquires: since when the log does not do what it should, zero: it does; why, and
	// when a take-over failed last that had its time.
	failing time.Time
	why     error
	tried   time.Time
	// offered is the token under which the shard was left to others for LostAfter, and declined whether
	// this node has it since then.
	offered  atomic.Int64
	declined bool
	ordered  atomic.Pointer[bool] // to the performance engine, or to the reliable one; nil: it is as it should be
}

// shardLog is the log of a shard that is this node's.
//
// Until it serves, nothing of its signers is remembered. From then on memory is whole: it has
// all that the log accepted, until the shard is lost. While it is stuck it is not known whether
// the log has what was appended last; nothing is planned meanwhile.
type shardLog struct {
	fence      nonce.LogFence
	epoch      int64
	serves     bool
	unanswered []service.Part // whose append has an unknown outcome
	raising    bool           // it is not known whether the try was raised; nothing is appended meanwhile
	// A statement that gives the shard the reliable engine was not answered. It may have happened,
	// or still happen, so nothing is appended any more, and it is sent until it is answered.
	leaving    bool
	leavingFor string    // the reason, as turnOff was told
	retryAt    time.Time // the next try while it fails
	seen       time.Time // when it was last seen to do what it should
	full       bool      // a record was refused for want of room, and none was taken since
	fullAt     time.Time // when the last one was

	dirty   map[service.Signer]*unshipped // signers that have something to be shipped
	shipped int64                         // the head up to which the rows have everything
	trimmed int64
	trust   time.Time        // until when hand-outs may rest on the log alone
	refused map[string]int64 // the head up to which what the log has of a stopped signer is not for the rows
}

func newLog(sh service.Shard, row *lease.Shard) *shardLog {
	return &shardLog{
		fence: nonce.LogFence{Shard: sh.ID(), Token: row.Token, Identity: row.Identity, Head: row.Shipped},
		epoch: row.Epoch, dirty: make(map[service.Signer]*unshipped),
	}
}

// settled reports whether batches may go into the log.
func (lg *shardLog) settled() bool {
	return lg.serves && len(lg.unanswered) == 0 && !lg.raising && !lg.leaving
}

// refuse leaves out what the log has of a signer, which is stopped.
func (lg *shardLog) refuse(name string) {
	if lg.refused == nil {
		lg.refused = make(map[string]int64)
	}
	lg.refused[name] = lg.fence.Head
}

// unshipped is what the rows do not have yet of a signer.
type unshipped struct {
	base     nonce.Signer // as the store has it, as far as is known
	token    int64        // of that row
	changes  int          // that the rows do not have
	since    time.Time
	history  []versioned[nonce.Past]
	requests []versioned[nonce.Remembered]
	waiting  []untold
	relist   bool        // what it was listed for has passed
	watch    nonce.Watch // as which it is to be watched
	handed   int         // nonces, since the last shipment
}

// versioned is a thing that a version of a signer brought.
type versioned[T any] struct {
	version int64
	it      T
}

// untold is an answer that waits until the rows have a version.
type untold struct {
	version int64
	service.Answer
}

var (
	errBehind    = nonce.Told("the log of the signer's shard has no room; try again")
	errAway      = nonce.Told("the log of the signer's shard cannot be used just now; try again")
	errDoubt     = nonce.Told("the shard was lost before the store had the write; ask again with the same request id")
	errNoCeiling = nonce.Told("no nonces could be reserved in the store")
	errStopped   = nonce.Told("the store refused what the log has of this signer; raise its floor above every nonce that was handed out")
	errStoreAway = nonce.Told("the database does not answer just now; try again")
)

// logTime bounds one call of the log.
func (e *Engine) logTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), e.cfg.Timeout)
}

func (e *Engine) grant() nonce.Grant {
	return nonce.Grant{For: e.cfg.Grant, LongestHold: e.svc.Config().MaxHold}
}

// of is what the engine knows of a shard.
func (e *Engine) of(sh service.Shard) *shard { return e.shards[sh.ID()] }

// owned are the shards with a log that are this node's; serving those whose log serves.
func (c *committer) owned() (all []*shard) {
	for _, sh := range c.mine {
		if sh.log != nil {
			all = append(all, sh)
		}
	}
	return all
}

func (c *committer) serving() (all []*shard) {
	for _, sh := range c.mine {
		if sh.log != nil && sh.log.serves {
			all = append(all, sh)
		}
	}
	return all
}

func (c *committer) Begin() {
	c.checkStore()
	if arrived := c.shipper.take(); arrived != nil {
		c.shipper.underWay = false
		c.shipped(arrived)
	}
}

// Tend implements service.Committer: shards follow the engine that is wanted, and what has failed is tried
// again.
func (c *committer) Tend() {
	for _, sh := range c.mine {
		if on := sh.ordered.Swap(nil); on != nil {
			c.follow(sh, *on)
		}
	}
	c.tendLogs()
}

func (c *committer) End() {
	c.handRehearsed()
	c.shipper.next()
	c.countLogs()
}

func (c *committer) Due() bool {
	now := time.Now()
	if c.shipper.isDue(now) || c.storeQuiet() {
		return true
	}
	for _, sh := range c.mine {
		if sh.ordered.Load() != nil || sh.log != nil && sh.due(now) {
			return true
		}
	}
	return false
}
