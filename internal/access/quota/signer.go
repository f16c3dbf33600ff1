package quota

import (
	"cmp"
	"hash/maphash"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// SignerConfig is how much may be asked of one signer, by all principals together.
type SignerConfig struct {
	Rate Rate
	// MaxSigners bounds the signers that are remembered; of more, the one asked for
	// least recently begins anew. 0: 65536.
	MaxSigners int
}

const (
	signerShards = 16
	maxSigners   = 1 << 16
)

// Signers are the buckets of the signers that were asked for lately.
type Signers struct {
	rate   Rate
	seed   maphash.Seed
	shards [signerShards]*lru.Cache[string, *bucket] // several, so that few wait for one lock
}

// NewSigners returns nil where there is no limit.
func NewSigners(cfg SignerConfig) *Signers {
	if !cfg.Rate.limited() {
		return nil
	}
	size := max(1, cmp.Or(cfg.MaxSigners, maxSigners)/signerShards)
	s := &Signers{rate: cfg.Rate, seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i], _ = lru.New[string, *bucket](size) // fails for a size below 1
	}
	return s
}

// Request takes one request for a signer. wait is how long until there is one.
func (s *Signers) Request(name string, now time.Time) (wait time.Duration, ok bool) {
	return s.bucketOf(name).take(s.rate, 1, now)
}

func (s *Signers) bucketOf(name string) *bucket {
	shard := s.shards[maphash.String(s.seed, name)%signerShards]
	if b, ok := shard.Get(name); ok {
		return b
	}
	added := new(bucket)
	if b, ok, _ := shard.PeekOrAdd(name, added); ok {
		return b // another goroutine was faster
	}
	return added
}

// len is how many signers are remembered.
func (s *Signers) len() (n int) {
	for _, shard := range s.shards {
		n += shard.Len()
	}
	return n
}
