//go:build unix

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"noncegate/internal/guarded"
	"noncegate/internal/pgtest"
)

// Cluster is gateways over one private PostgreSQL. Clients that know the first
// alone make it forward to the others.
type Cluster struct {
	Nodes []*Gateway
	pg    *pgtest.Server
}

// clusterTime bounds the start of a cluster.
const clusterTime = 60 * time.Second

// StartCluster starts n nodes from the sources below root, each with the flags
// given, and returns once all of them serve and reach each other. Stop ends them.
func StartCluster(ctx context.Context, room *guarded.Room, root string, n int, flags ...string) (c *Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	program, err := Build(ctx, root, room.Dir())
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
	for i := range n {
		g, err := StartGateway(ctx, room, program, fmt.Sprintf("node-%d", i+1), c.pg.URL(database), flags...)
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, g)
	}
	for _, g := range c.Nodes {
		if err := g.awaitLinks(ctx, n-1); err != nil {
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
	return poll(ctx, g.process, func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Admin+"/metrics", nil)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		figures, err := io.ReadAll(response.Body)
		return bytes.Contains(figures, want), err
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
	return errors.Join(errs...)
}

// Admins are the addresses of the figures of all nodes.
func (c *Cluster) Admins() []string {
	var all []string
	for _, g := range c.Nodes {
		all = append(all, g.Admin)
	}
	return all
}
