package redisdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errAway is in the error of a Redis that did not answer, or cannot serve yet.
var errAway = errors.New("it is away")

// Check asks every master what it is. An error is a sentence about the first thing
// that is not as it must be.
func (db *DB) Check(ctx context.Context) (Facts, error) {
	switch c := db.client.(type) {
	case *redis.ClusterClient:
		return checkCluster(ctx, c)
	case *redis.Client:
		s, err := checkServer(ctx, c)
		if err == nil && s.Mode == "cluster" {
			err = fmt.Errorf("%s belongs to a Redis Cluster: such an address starts with redis+cluster://", s.Addr)
		}
		return Facts{Servers: []Server{s}}, err
	}
	return Facts{}, fmt.Errorf("a client of type %T", db.client)
}

func checkCluster(ctx context.Context, c *redis.ClusterClient) (Facts, error) {
	shards, err := c.ClusterShards(ctx).Result()
	if err != nil {
		return Facts{}, answer(strings.Join(c.Options().Addrs, ", "), err)
	}
	covered := 0
	for _, shard := range shards {
		for _, s := range shard.Slots {
			covered += int(s.End - s.Start + 1)
		}
	}
	if covered != allSlots {
		return Facts{}, fmt.Errorf("its cluster has servers for %d of %d slots: %w", covered, allSlots, errAway)
	}
	c.ReloadState(ctx)
	var mu sync.Mutex
	f := Facts{Cluster: true}
	err = c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		s, err := checkServer(ctx, one)
		mu.Lock()
		defer mu.Unlock()
		f.Servers = append(f.Servers, s)
		return err
	})
	slices.SortFunc(f.Servers, func(a, b Server) int { return cmp.Compare(a.Addr, b.Addr) })
	if err == nil && len(f.Servers) == 0 {
		err = fmt.Errorf("its cluster has no server: %w", errAway)
	}
	return f, err
}

// allSlots is how many a cluster has.
const allSlots = 16384

func checkServer(ctx context.Context, c *redis.Client) (Server, error) {
	addr := c.Options().Addr
	text, err := c.Info(ctx).Result()
	if err != nil {
		return Server{Addr: addr}, answer(addr, err)
	}
	s := parseInfo(text)
	s.Addr = addr
	if s.AOF { // a provider may refuse the question
		if got, err := c.ConfigGet(ctx, "appendfsync").Result(); err == nil {
			s.Fsync = got["appendfsync"]
		}
	}
	return s, s.judge()
}

// judge says which rule the server breaks.
func (s *Server) judge() error {
	switch {
	case tooOld(s.Version):
		return fmt.Errorf("%s is Redis %.20q: %s is the oldest version with sharded publish and subscribe", s.Addr, s.Version, oldest)
	case s.Mode == "sentinel":
		return fmt.Errorf("%s is a sentinel, which keeps no data: the address must be that of the server", s.Addr)
	case s.loading:
		return fmt.Errorf("%s still loads its data: %w", s.Addr, errAway)
	case s.Role != "master":
		return fmt.Errorf("%s is a read-only replica: the address must be that of the master", s.Addr)
	case s.Policy != "noeviction":
		return fmt.Errorf("%s has the maxmemory-policy %.30q and would lose holds by eviction: it must be noeviction", s.Addr, s.Policy)
	}
	return nil
}

// answer makes a sentence of an error. Whatever the server says of a password is
// left out, and so is what go-redis was configured with.
func answer(addr string, err error) error {
	var said redis.Error
	if !errors.As(err, &said) {
		return fmt.Errorf("%s does not answer (%w): %w", addr, err, errAway)
	}
	word, _, _ := strings.Cut(said.Error(), " ")
	switch {
	case word == "WRONGPASS", strings.Contains(said.Error(), "invalid password"), strings.Contains(said.Error(), "without any password configured"):
		return fmt.Errorf("%s refuses the user or password", addr)
	case word == "NOAUTH":
		return fmt.Errorf("%s wants a password, as in redis://:PASSWORD@HOST:PORT", addr)
	case word == "NOPERM":
		return fmt.Errorf("%s does not let this user run what is needed (%w)", addr, err)
	case word == "LOADING", word == "BUSY", word == "MASTERDOWN", word == "CLUSTERDOWN":
		return fmt.Errorf("%s cannot serve now (%w): %w", addr, err, errAway)
	case strings.Contains(said.Error(), "cluster support disabled"):
		return fmt.Errorf("%s belongs to no cluster: the address of one server starts with redis://", addr)
	}
	return fmt.Errorf("%s answers %w", addr, err)
}
