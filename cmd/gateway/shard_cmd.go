package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"noncegate/internal/admin"
	"noncegate/wire"
)

type shardCmd struct {
	List shardListCmd `cmd:"" help:"Show who owns each shard, who should have it, and where it is pinned, as the gateway sees it."`
	Move shardMoveCmd `cmd:"" help:"Pin a shard to a node, which then has it for as long as that node lives, or unpin it."`
}

type shardListCmd struct{ adminCmd }

// Run implements the command.
func (c *shardListCmd) Run(ctx context.Context, p *program) error {
	_, err := tell(ctx, p, &c.adminCmd, admin.ListShards, admin.None{}, printShards)
	return err
}

func printShards(w io.Writer, v *admin.ShardList) error {
	return list(w, "SHARD\tOWNER\tTOKEN\tHEIR\tPINNED\tURL", v.Shards, func(s *admin.ListedShard) []any {
		return []any{s.ID, s.Owner, s.Token, s.Preferred, s.Pinned, s.URL}
	}).Flush()
}

type shardMoveCmd struct {
	Shard int64  `arg:"" help:"Number of the shard, from 0."`
	Node  string `arg:"" optional:"" help:"Id of a live node of mode worker-queue."`
	Unpin bool   `help:"Instead of NODE: let the balance say again who should have it."`
	Why
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *shardMoveCmd) Validate() error {
	if err := c.adminCmd.Validate(); err != nil {
		return err
	}
	switch {
	case c.Shard < 0:
		return fmt.Errorf("%d is no shard: they are numbered from 0", c.Shard)
	case c.Unpin && c.Node != "":
		return errors.New("NODE and --unpin contradict each other: give one of them")
	case !c.Unpin && c.Node == "":
		return errors.New("say the NODE that is to have the shard, or --unpin")
	}
	return nil
}

// Run implements the command.
func (c *shardMoveCmd) Run(ctx context.Context, p *program) error {
	o := admin.MoveOrder{Shard: &c.Shard, Node: &c.Node, Because: c.because()}
	_, err := tell(ctx, p, &c.adminCmd, admin.MoveShard, o, func(w io.Writer, v *admin.MovedShard) error {
		return foreseen(w, &v.Foreseen, func() error { _, err := fmt.Fprintln(w, movedWords(&v.Shard)); return err })
	})
	return err
}

// movedWords says what becomes of a shard that was moved.
func movedWords(s *admin.ListedShard) string {
	words := fmt.Sprintf("shard %d is not pinned", s.ID)
	if s.Pinned != "" {
		words = fmt.Sprintf("shard %d is pinned to %s", s.ID, s.Pinned)
	}
	switch {
	case s.Owner == s.Preferred && s.Owner != "":
		return words + ", and " + s.Owner + " has it"
	case s.Preferred == "":
		return words + ", and no node should have it"
	case s.Owner == "":
		return words + "; " + s.Preferred + " takes it"
	case s.Mine && s.Stopped > 0:
		return fmt.Sprintf("%s; %s keeps it until the signers of it that are stopped, %d, have a safe floor, and gives it to %s then",
			words, s.Owner, s.Stopped, s.Preferred)
	}
	return words + "; " + s.Owner + " has it still, and gives it to " + s.Preferred
}

type nodesCmd struct{ adminCmd }

// Run implements the command.
func (c *nodesCmd) Run(ctx context.Context, p *program) error {
	_, err := tell(ctx, p, &c.adminCmd, admin.ListNodes, admin.None{}, printNodes)
	return err
}

func printNodes(w io.Writer, v *admin.NodesView) error {
	t := list(w, "NODE\tSTATE\tSHARDS\tMODE\tSTARTS\tSINCE\tSEEN\tURL", v.Nodes, func(n *wire.NodeInfo) []any {
		return []any{n.Node, n.State, n.Shards, n.Mode, n.Incarnation, n.StartedAt, n.SeenAt, n.URL}
	})
	if more := v.NodeCount - int64(len(v.Nodes)); more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	return t.Flush()
}
