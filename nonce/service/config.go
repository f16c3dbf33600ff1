package service

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

// Config are the settings of a Service. All are required unless said otherwise.
type Config struct {
	Mode    nonce.Mode
	Workers int // in mode basic only workers for events
	// QueueCapacity is the slots of one worker's queue, in ops. While several
	// principals have slots there, none has more than an equal share: the capacity
	// divided by how many they are. So that who comes to a queue that others have filled
	// finds a slot at once, an eighth of the capacity is kept beside it for those below
	// their share. A batch takes an op of each principal in turn.
	QueueCapacity int
	Reject        nonce.Reject // what a full queue means
	MaxBatch      int          // ops of one batch; 0: 1024. While several principals wait it is 256 at most

	LeaseTTL     time.Duration // of the node; at least a second
	WatchEvery   time.Duration // between two looks who owns which shard; 0: 500ms
	StoreTimeout time.Duration // one call of the store; 0: 5s. Past it a commit is unknown
	LockWait     time.Duration // how long a row locked by others is retried; 0: 2s
	LockRetry    time.Duration // between two tries; 0: 5ms

	// MaxSigners and MaxSignerBytes bound what is remembered of signers, of all workers
	// together; 0: 1,000,000 and 512 MiB. Who is forgotten is read again when asked for.
	MaxSigners     int
	MaxSignerBytes int64

	// Engine is the performance engine; nil: this node serves no shard that has it.
	Engine Engine

	Rules            rules.Rules
	Chain            nonce.Chain   // nil: no chain is configured
	MaxHold          time.Duration // the longest hold anybody may ask for
	SweepInterval    time.Duration // between two looks for overdue holds
	RequestRetention time.Duration // 0 keeps request ids for ever
	HistoryRetention time.Duration // of CONSUMED nonces, from their last change on; 0 keeps them for ever

	// Router carries ops to the nodes that own their signers. nil: what another
	// node owns is refused with nonce.NotOwnerError. Mode basic does not ask it.
	Router Router
	// OnHalt is told why the node stopped serving, once at most; nil: nobody is.
	OnHalt func(error)
	// OnNodes is given the nodes after each look; nil: nobody wants them. It must not block.
	OnNodes func([]lease.Node)
}

// Router carries requests to other nodes. Its methods are called from workers, and from callers of Submit: they must not
// block, nor call the Service.
type Router interface {
	// Reaches reports whether ops can be sent to the node now.
	Reaches(node string) bool
	// Forward sends a request to the node, on the path of that number, which is unique in this
	// process and the same for requests of one signer that must not overtake one another. An error
	// means that nothing was sent; otherwise the router calls of.Return once.
	Forward(node, url string, q *nonce.Request, path uint64, of nonce.Forwarded) error
}

func (c *Config) defaults() {
	c.MaxBatch = cmp.Or(c.MaxBatch, 1024)
	c.WatchEvery = cmp.Or(c.WatchEvery, 500*time.Millisecond)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	c.LockWait = cmp.Or(c.LockWait, 2*time.Second)
	c.LockRetry = cmp.Or(c.LockRetry, 5*time.Millisecond)
	c.MaxSigners = cmp.Or(c.MaxSigners, 1_000_000)
	c.MaxSignerBytes = cmp.Or(c.MaxSignerBytes, 512<<20)
}

func (c *Config) validate() error {
	r := &c.Rules
	switch {
	case c.Mode != nonce.WorkerQueue && c.Mode != nonce.Basic:
		return fmt.Errorf("mode %q is neither %q nor %q", c.Mode, nonce.WorkerQueue, nonce.Basic)
	case c.Reject != nonce.FailFast && c.Reject != nonce.CallerRuns:
		return fmt.Errorf("reject policy %q is neither %q nor %q", c.Reject, nonce.FailFast, nonce.CallerRuns)
	case c.Workers < 1 || c.QueueCapacity < 1:
		return errors.New("workers, and the capacity of a worker's queue, must be at least 1")
	case c.LeaseTTL < time.Second:
		return errors.New("the lease ttl must be at least 1s")
	case r.DefaultHold <= 0 || r.DefaultHold > c.MaxHold:
		return errors.New("the default hold must be above 0 and not above the longest hold")
	case r.MaxLive < 1 || r.MaxLive > nonce.MaxLive:
		return fmt.Errorf("the open holds of a signer must be 1 to %d", nonce.MaxLive)
	case c.MaxSigners < 1 || c.MaxSignerBytes < 1:
		return errors.New("the signers that are remembered, and their bytes, must be at least 1")
	case r.NewSigners != "" && r.NewSigners != nonce.AllowNew && r.NewSigners != nonce.RefuseNew:
		return fmt.Errorf("new signers %q is neither %q nor %q", r.NewSigners, nonce.AllowNew, nonce.RefuseNew)
	case c.SweepInterval <= 0:
		return errors.New("the sweep interval must be above 0")
	case c.RequestRetention < 0 || c.HistoryRetention < 0:
		return errors.New("a retention must not be below 0")
	}
	return nil
}
