//go:build unix

package redistest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"noncegate/test/lab/guarded"
)

// Cluster is several servers that are a Redis Cluster of masters without replicas, each with an equal share of the slots.
type Cluster struct {
	Servers []*Server // not to be changed
}

const (
	slots       = 16384
	nodeTimeout = "2000" // milliseconds until the others notice that one is gone
)

// StartCluster starts n servers as a cluster and returns once all of them know all
// slots. settings are as for Start. The caller must Close.
func StartCluster(n int, settings ...string) (*Cluster, error) {
	c := new(Cluster)
	password := rand.Text() // the same for all, as a client of the cluster has only one
	for range n {
		bus, err := guarded.FreePort() // by itself it would be in the range of outgoing connections
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s, err := start(password, append([]string{
			"cluster-enabled yes", "cluster-port " + strconv.Itoa(bus), "cluster-node-timeout " + nodeTimeout,
		}, settings...))
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		s.bus = bus
		c.Servers = append(c.Servers, s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), guarded.StartTimeout)
	defer cancel()
	if err := c.join(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start Redis Cluster: %w", err), c.Close())
	}
	return c, nil
}

// join gives the slots out and makes the servers known to the first one.
func (c *Cluster) join(ctx context.Context) error {
	for i, s := range c.Servers {
		client := s.Dial()
		defer client.Close()
		if err := client.ClusterAddSlotsRange(ctx, i*slots/len(c.Servers), (i+1)*slots/len(c.Servers)-1).Err(); err != nil {
			return err
		}
		if err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil { // else they quarrel first
			return err
		}
		if i == 0 {
			continue
		}
		if err := client.Do(ctx, "cluster", "meet", "127.0.0.1", c.Servers[0].port, c.Servers[0].bus).Err(); err != nil {
			return err
		}
	}
	return c.Await(ctx)
}

// Await waits until every server that runs says that the cluster is whole.
func (c *Cluster) Await(ctx context.Context) error {
	for _, s := range c.Servers {
		if s.PID() == 0 {
			continue
		}
		client := s.Dial()
		defer client.Close()
		err := guarded.Retry(ctx, 5*guarded.ReadyPoll, func(ctx context.Context) error {
			info, err := client.ClusterInfo(ctx).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Servers)))) {
				err = fmt.Errorf("the cluster is not whole: %s", info)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Move gives a slot that holds no keys from one server to another.
func (c *Cluster) Move(ctx context.Context, slot, from, to int) error {
	target := c.Servers[to].Dial()
	defer target.Close()
	id, err := target.Do(ctx, "cluster", "myid").Text()
	if err != nil {
		return err
	}
	for _, i := range []int{to, from} { // the new owner first, so that nobody sends it back
		client := c.Servers[i].Dial()
		defer client.Close()
		if err := client.Do(ctx, "cluster", "setslot", slot, "node", id).Err(); err != nil {
			return fmt.Errorf("move slot %d: %w", slot, err)
		}
	}
	return nil
}

// Owner is the index of the server that says it has the slot; -1: none does.
func (c *Cluster) Owner(ctx context.Context, slot int) (int, error) {
	client := c.Servers[0].Dial()
	defer client.Close()
	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		return -1, err
	}
	for _, shard := range shards {
		for _, r := range shard.Slots {
			if int64(slot) < r.Start || int64(slot) > r.End {
				continue
			}
			for i, s := range c.Servers {
				if shard.Nodes[0].Port == int64(s.port) {
					return i, nil
				}
			}
		}
	}
	return -1, nil
}

// URL addresses the cluster by all its servers.
func (c *Cluster) URL() string {
	hosts := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		hosts[i] = s.Addr()
	}
	return "redis+cluster://" + url.UserPassword("", c.Servers[0].password).String() + "@" + strings.Join(hosts, ",")
}

// Close ends all servers.
func (c *Cluster) Close() error {
	var err error
	for _, s := range c.Servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
