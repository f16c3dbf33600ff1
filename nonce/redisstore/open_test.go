//go:build unix

package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce/redisstore"
)

func TestWhatCannotWorkIsRefusedAtOnce(t *testing.T) {
	good := redisstore.Config{Cluster: "test", Shards: 1}
	options := func(edit func(*redis.Options)) *redis.Client {
		o := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
		edit(o)
		c := redis.NewClient(o)
		t.Cleanup(func() { c.Close() })
		return c
	}
	client := options(func(*redis.Options) {})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	for name, try := range map[string]func() (*redisstore.Store, error){
		"no cluster": func() (*redisstore.Store, error) { return redisstore.Open(client, redisstore.Config{Shards: 1}) },
		"braces": func() (*redisstore.Store, error) {
			return redisstore.Open(client, redisstore.Config{Cluster: "a}", Shards: 1})
		},
		"no shard": func() (*redisstore.Store, error) { return redisstore.Open(client, redisstore.Config{Cluster: "test"}) },
		"a ring":   func() (*redisstore.Store, error) { return redisstore.Open(ring, good) },
		"retries": func() (*redisstore.Store, error) {
			return redisstore.Open(options(func(o *redis.Options) { o.MaxRetries = 3 }), good)
		},
		"no deadlines": func() (*redisstore.Store, error) {
			return redisstore.Open(options(func(o *redis.Options) { o.ContextTimeoutEnabled = false }), good)
		},
		"a broken duration": func() (*redisstore.Store, error) {
			return redisstore.Open(client, redisstore.Config{Cluster: "test", Shards: 1, Retention: 1})
		},
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s: it is opened", name)
		}
	}
	if _, err := redisstore.Open(client, good); err != nil {
		t.Error(err)
	}
}

func TestTheShardOfASignerIsTheSameForEver(t *testing.T) {
	for signer, want := range map[string]int{"": 9, "a": 11, "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb": 8} {
		if got := redisstore.Shard(signer, 16); got != want {
			t.Errorf("the shard of %q is %d, want %d", signer, got, want)
		}
	}
}
