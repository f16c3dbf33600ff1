//go:build unix

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"noncegate/internal/testenv/gateway"
	"noncegate/internal/testenv/guarded"
	"noncegate/internal/testenv/pgtest"
	"noncegate/internal/testenv/redistest"
)

// Cluster is gateways over one private PostgreSQL, and a Redis and a chain where they
// have one.
// Clients that know the first alone make it forward to the others.
type Cluster struct {
	Nodes []*Gateway
	Chain *Chain // nil: there is none
	pg    *pgtest.Server
	redis *redistest.Server // nil: there is none
}

// ClusterConfig is what a cluster has.
type ClusterConfig struct {
	Nodes int
	Redis bool
	Chain bool
	Flags []string // of each node
}

// clusterTime bounds the start of a cluster.
const clusterTime = 60 * time.Second

// StartCluster starts nodes from the sources and returns once all of them
// serve and reach each other. Stop ends them.
func StartCluster(ctx context.Context, room *guarded.Room, cfg ClusterConfig) (c *Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	program, err := gateway.Program(ctx)
	if err != nil {
		return nil, err
	}
	c = new(Cluster)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.pg, err = pgtest.Start(); err != nil {
		return c, err
	}
	database, err := c.pg.CreateDatabase(ctx)
	if err != nil {
		return c, err
	}
	flags := cfg.Flags
	if cfg.Redis {
		if c.redis, err = redistest.Start(); err != nil {
			return c, err
		}
		flags = append(slices.Clone(flags), "--redis="+c.redis.URL())
	}
	if cfg.Chain {
		if c.Chain, err = StartChain(); err != nil {
			return c, err
		}
		flags = append(slices.Clone(flags), c.Chain.flags()...)
	}
	for i := range cfg.Nodes {
		g, err := startGateway(ctx, room, program, fmt.Sprintf("node-%d", i+1), c.pg.URL(database), flags...)
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, g)
	}
	for _, g := range c.Nodes {
		if err := g.awaitLinks(ctx, cfg.Nodes-1); err != nil {
			return c, err
		}
	}
	return c, nil
}

// awaitLinks waits until a node is linked to so many others. Signers that are in
// use before that stay where they are, and nothing would be forwarded.
func (g *Gateway) awaitLinks(ctx context.Context, n int) error {
	want := fmt.Appendf(nil, "\nnoncegate_peers_linked %d\n", n)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return g.process.Await(ctx, again, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Admin+"/metrics", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		metrics, err := io.ReadAll(response.Body)
		if err == nil && !bytes.Contains(metrics, want) {
			err = errNotYet
		}
		return err
	})
}

// Stop lets the nodes drain, one after the other, and ends their store. It returns
// what went wrong, and has ended everything in any case.
func (c *Cluster) Stop() error {
	var errs []error
	for _, g := range c.Nodes {
		errs = append(errs, g.Stop())
	}
	c.Nodes = nil
	if c.pg != nil {
		errs = append(errs, c.pg.Close())
		c.pg = nil
	}
	if c.redis != nil {
		errs = append(errs, c.redis.Close())
		c.redis = nil
	}
	if c.Chain != nil {
		errs = append(errs, c.Chain.Stop())
		c.Chain = nil
	}
	return errors.Join(errs...)
}

// Switch asks for a state of the engines: performance, drain and so on.
func (c *Cluster) Switch(ctx context.Context, to string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	body := strings.NewReader(fmt.Sprintf(`{"to":%q}`, to))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.Nodes[0].Admin+"/engine/switch", body)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("switch to %s: %s: %s", to, response.Status, said)
	}
	return err
}

// LoseRedis ends Redis hard and starts it again, with what it had written: another
// life of it, which counts as lost.
func (c *Cluster) LoseRedis() error { return errors.Join(c.redis.Kill(), c.redis.Restart()) }

// Admins are the addresses of the metrics of all nodes.
func (c *Cluster) Admins() []string {
	var all []string
	for _, g := range c.Nodes {
		all = append(all, g.Admin)
	}
	return all
}
