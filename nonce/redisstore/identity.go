package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// Server is one server that has shards.
type Server struct {
	Addr     string
	Shards   []int
	Identity nonce.Identity
	// Took is how long it took to run a script that runs every command of the
	// others once, the way there and back included. Only Probe fills it.
	Took time.Duration
}

// Identities asks each server that has shards who it is.
func (s *Store) Identities(ctx context.Context) ([]Server, error) {
	return s.each(ctx, func(server *Server) error {
		var err error
		server.Identity, err = s.ask(ctx, server.Shards[0], "identities", func(redis.Pipeliner) {})
		return err
	})
}

// Probe has each server that has shards run every command that is needed, on keys of
// its own. Who may not run one of them, or cannot write, is told so here.
func (s *Store) Probe(ctx context.Context) ([]Server, error) {
	return s.each(ctx, func(server *Server) error {
		tag := s.tags[server.Shards[0]] + "probe"
		started := time.Now()
		a := s.run(ctx, "probe", []call{{script: probeScript, keys: []string{tag + "1", tag + "2", tag + "3", tag + "4", tag + "5"}}})[0]
		server.Took, server.Identity = time.Since(started), a.server
		if a.fate != answered {
			return a.err
		}
		return nil
	})
}

// each calls f for the servers that have shards, in the order of their first one.
func (s *Store) each(ctx context.Context, f func(*Server) error) ([]Server, error) {
	var servers []Server
	for shard := range s.cfg.Shards {
		node, err := s.node(ctx, s.streamKey(shard))
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		addr := node.Options().Addr
		at := slices.IndexFunc(servers, func(have Server) bool { return have.Addr == addr })
		if at < 0 {
			at = len(servers)
			servers = append(servers, Server{Addr: addr})
		}
		servers[at].Shards = append(servers[at].Shards, shard)
	}
	for i := range servers {
		if err := f(&servers[i]); err != nil {
			return nil, fmt.Errorf("ask Redis at %s: %w", servers[i].Addr, err)
		}
	}
	return servers, nil
}
