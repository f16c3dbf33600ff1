package redisstore

import (
	"context"
	"fmt"
	"strings"
)

// scanKeys is how many keys are looked at by one command of Signers, at the least.
const scanKeys = 1000

// Signers calls f for every signer that is in Redis. One that comes or goes meanwhile
// may be among them or not; none is told twice. All keys of the servers are walked
// over, a part at a time. An error of f ends it and is returned.
func (s *Store) Signers(ctx context.Context, f func(signer string) error) error {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
	match := "{noncegate:" + escape.Replace(s.cfg.Cluster) + ":*}n:*"
	told := make(map[string]struct{})
	servers := make(map[string]struct{})
	for shard := range s.cfg.Shards {
		node, err := s.node(ctx, s.streamKey(shard))
		if err != nil {
			return fmt.Errorf("find the server of shard %d: %w", shard, err)
		}
		if _, again := servers[node.Options().Addr]; again {
			continue
		}
		servers[node.Options().Addr] = struct{}{}
		for cursor := uint64(0); ; {
			keys, next, err := node.ScanType(ctx, cursor, match, scanKeys, "hash").Result()
			if err != nil {
				return fmt.Errorf("walk over the keys of Redis: %w", err)
			}
			for _, key := range keys {
				_, signer, _ := strings.Cut(key, "}n:")
				if _, twice := told[signer]; twice || s.keys(signer).rows != key {
					continue
				}
				told[signer] = struct{}{}
				if err := f(signer); err != nil {
					return err
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}
