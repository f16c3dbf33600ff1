package quota

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
)

// SignerConfig is how much may be asked of one signer, whoever asks.
type SignerConfig struct {
	Rate Rate
	// Most bounds the signers that are remembered; of more, the one asked for least
	// recently begins anew. 0: 65536.
	Most int
}

const (
	signerShards = 16
	maxSigners   = 1 << 16
)

// Signers are the buckets of the signers that were asked for lately.
type Signers struct {
	rate   Rate
	most   int // of one shard
	seed   maphash.Seed
	shards [signerShards]signerShard
}

type signerShard struct {
	mu     sync.Mutex // guards what follows
	byName map[string]*list.Element
	recent list.List // of *signer, the latest first
}

type signer struct {
	name string
	bucket
}

// NewSigners returns nil where there is no limit.
func NewSigners(cfg SignerConfig) *Signers {
	if !cfg.Rate.limited() {
		return nil
	}
	if cfg.Most == 0 {
		cfg.Most = maxSigners
	}
	s := &Signers{rate: cfg.Rate, most: max(1, cfg.Most/signerShards), seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].byName = make(map[string]*list.Element)
	}
	return s
}

// Request takes one request for a signer. wait is how long until there is one.
func (s *Signers) Request(name string, now time.Time) (wait time.Duration, ok bool) {
	return s.bucketOf(name).take(s.rate, 1, now)
}

func (s *Signers) bucketOf(name string) *bucket {
	h := &s.shards[maphash.String(s.seed, name)%signerShards]
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.byName[name]; ok {
		h.recent.MoveToFront(e)
		return &e.Value.(*signer).bucket
	}
	if h.recent.Len() == s.most {
		delete(h.byName, h.recent.Remove(h.recent.Back()).(*signer).name)
	}
	one := &signer{name: name}
	h.byName[name] = h.recent.PushFront(one)
	return &one.bucket
}

// Len is how many signers are remembered.
func (s *Signers) Len() int {
	n := 0
	for i := range s.shards {
		h := &s.shards[i]
		h.mu.Lock()
		n += h.recent.Len()
		h.mu.Unlock()
	}
	return n
}
