package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"noncegate/client"
	"noncegate/wire"
)

// lookCmd is what the commands share that ask a gateway and print what they were
// told, for people or for programs.
type lookCmd struct {
	GatewayURL
	JSON    bool          `name:"json" help:"Print JSON, in one line."`
	Timeout time.Duration `default:"10s" min:"1ms" text:"timeout-of-questions"`
}

// look asks the gateway, and prints what it was told as JSON or by table.
func look[T any](
	ctx context.Context, c *lookCmd, w io.Writer, ask func(context.Context, *client.Client) (T, error), table func(io.Writer, T) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	gateway, err := c.dial(ctx, client.Config{MaxElapsed: c.Timeout})
	if err != nil {
		return err
	}
	defer gateway.Close()
	told, err := ask(ctx, gateway)
	if err != nil {
		return err
	}
	if !c.JSON {
		return table(w, told)
	}
	line, err := wire.Marshal(&told)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}

type nodesCmd struct {
	lookCmd
}

// nodesView is what the command prints: the part of gateway_info about nodes.
type nodesView struct {
	NodeCount int64           `json:"nodeCount"`
	Nodes     []wire.NodeInfo `json:"nodes"`
}

// Run implements the command.
func (c *nodesCmd) Run(ctx context.Context, p *program) error {
	return look(ctx, &c.lookCmd, p.stdout, func(ctx context.Context, gateway *client.Client) (nodesView, error) {
		info, err := gateway.Info(ctx)
		return nodesView{NodeCount: info.NodeCount, Nodes: info.Nodes}, err
	}, printNodes)
}

func printNodes(w io.Writer, v nodesView) error {
	t := columns(w)
	fmt.Fprintln(t, "NODE\tSTATE\tSHARDS\tMODE\tSTARTS\tSINCE\tSEEN\tURL")
	for _, n := range v.Nodes {
		t.row(n.Node, n.State, n.Shards, n.Mode, n.Incarnation, n.StartedAt, n.SeenAt, n.URL)
	}
	if more := v.NodeCount - int64(len(v.Nodes)); more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	return t.Flush()
}
