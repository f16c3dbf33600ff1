package quota

import (
	"hash/maphash"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Seen remembers which signers were counted as new, of which there may be maxSigners; of
// more, the one asked for least recently is new again.
type Seen struct {
	seed   maphash.Seed
	shards [signerShards]*lru.Cache[string, struct{}]
}

// NewSeen has seen none.
func NewSeen() *Seen {
	s := &Seen{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i], _ = lru.New[string, struct{}](maxSigners / signerShards) // fails for a size below 1
	}
	return s
}

// First takes a new signer of a principal, which may have so many a minute and at once; 0: any
// number. A signer that was seen takes nothing. wait is how long until there is room for one.
func (u *Usage) First(s *Seen, signer string, perMinute int, now time.Time) (wait time.Duration, ok bool) {
	if perMinute == 0 {
		return 0, true
	}
	shard := s.shards[maphash.String(s.seed, signer)%signerShards]
	if _, there := shard.Get(signer); there {
		return 0, true
	}
	if wait, ok = u.entry.E.signers.take(Rate{PerSecond: float64(perMinute) / 60, Burst: perMinute}, 1, now); ok {
		shard.Add(signer, struct{}{})
	}
	return wait, ok
}
