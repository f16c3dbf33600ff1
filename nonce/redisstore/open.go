package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// MaxShards bounds Config.Shards.
const MaxShards = 4096

// Config is how a Store keeps signers. Every node of a cluster must have the same.
type Config struct {
	// Cluster tells clusters apart that share one Redis. No braces.
	Cluster string
	// Shards is how many flush shards there are. It can never be changed while
	// anything is in Redis, which is why the store keeps it.
	Shards int
	// Retention is how long a request id is kept, by the clock of Redis; 0: for good.
	Retention time.Duration
	// Observe, if set, is told of each pipeline: which call it was of, how many
	// scripts it had and how long it took, the way there and back included. It may
	// be called from many goroutines and must be quick.
	Observe func(call string, scripts int, took time.Duration)
}

func (c *Config) validate() error {
	switch {
	case c.Cluster == "" || strings.ContainsAny(c.Cluster, "{} \r\n"):
		return fmt.Errorf("the name of the cluster is %q: it must not be empty, nor have braces or spaces", c.Cluster)
	case c.Shards < 1 || c.Shards > MaxShards:
		return fmt.Errorf("%d flush shards: there must be 1 to %d", c.Shards, MaxShards)
	case c.Retention < 0 || c.Retention%time.Millisecond != 0:
		return fmt.Errorf("a retention of %v: it must be whole milliseconds, and not negative", c.Retention)
	}
	return nil
}

// Store is Redis as the performance engine uses it. Its methods may be called from
// any goroutine.
type Store struct {
	client    redis.UniversalClient
	cluster   *redis.ClusterClient // nil: one server
	cfg       Config
	retention string   // milliseconds
	tags      []string // of the shards
}

var _ nonce.Fast = (*Store)(nil)

var (
	errRetries  = errors.New("the Redis client must not retry: a command whose answer was lost may have run")
	errNoBounds = errors.New("the Redis client must obey the deadlines of contexts")
)

// Open makes a Store of a client, which stays the caller's. Nothing is sent.
func Open(client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open Redis store: %w", err)
	}
	s := &Store{client: client, cfg: cfg, retention: num(cfg.Retention.Milliseconds())}
	var retries int
	var bounded bool
	switch c := client.(type) {
	case *redis.Client:
		retries, bounded = c.Options().MaxRetries, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.cluster = c
		retries, bounded = c.Options().MaxRetries, c.Options().ContextTimeoutEnabled
	default:
		return nil, fmt.Errorf("open Redis store: a client of type %T is not known", client)
	}
	switch {
	case retries > 0:
		return nil, fmt.Errorf("open Redis store: %w", errRetries)
	case !bounded:
		return nil, fmt.Errorf("open Redis store: %w", errNoBounds)
	}
	for i := range cfg.Shards {
		s.tags = append(s.tags, "{noncegate:"+cfg.Cluster+":"+strconv.Itoa(i)+"}")
	}
	return s, nil
}

// Shards is how many flush shards there are.
func (s *Store) Shards() int { return s.cfg.Shards }

// Shard is the flush shard of a signer.
func (s *Store) Shard(signer string) int { return Shard(signer, s.cfg.Shards) }

// Shard is the flush shard of a signer where there are that many. It is the same
// for ever: what is in Redis was put there by it.
func Shard(signer string, shards int) int {
	return int(xxhash.Sum64String(signer) % uint64(shards))
}

// keys are those of one signer.
type keys struct{ rows, held, released, stream, requests string }

// request is the key of a request id under the epoch of a version: what is remembered
// of an epoch that was lost with Redis, the store may not know. Neither a signer nor a
// request id has a space.
func (k *keys) request(version int64, id string) string {
	return k.requests + num(nonce.EpochOf(version)) + " " + id
}

func (s *Store) keys(signer string) keys {
	tag := s.tags[s.Shard(signer)]
	return keys{
		rows: tag + "n:" + signer, held: tag + "h:" + signer, released: tag + "r:" + signer,
		stream: tag + "events", requests: tag + "q:" + signer + " ",
	}
}

func (s *Store) streamKey(shard int) string { return s.tags[shard] + "events" }
func (s *Store) deadKey(shard int) string   { return s.tags[shard] + "dead" }

func num(n int64) string { return strconv.FormatInt(n, 10) }
