package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"noncegate/internal/nearest"
)

type helpCmd struct {
	Command []string `arg:"" optional:"" sep:"none" help:"A command, such as key create. Without one, the commands are listed."`
}

// Validate reports a command that does not exist.
func (c *helpCmd) Validate(kctx *kong.Context) error {
	node := kctx.Model.Node
	for i, name := range c.Command {
		at := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if at < 0 {
			return noCommand(c.Command[:i+1], node)
		}
		node = node.Children[at]
	}
	return nil
}

// noCommand says which command of node is the nearest to the last of names.
func noCommand(names []string, node *kong.Node) error {
	var known []string
	for _, child := range node.Children {
		known = append(known, child.Name)
	}
	last := len(names) - 1
	if meant := nearest.Word(names[last], known); meant != "" {
		instead := strings.Join(append(names[:last:last], meant), " ")
		return fmt.Errorf("there is no command %q; did you mean %q?", strings.Join(names, " "), instead)
	}
	return fmt.Errorf("there is no command %q; gateway help lists them", strings.Join(names, " "))
}

// Run implements the command: it is the same as the other one with --help.
func (c *helpCmd) Run(ctx context.Context, p *program) error {
	p.run(ctx, append(slices.Clone(c.Command), "--help")) // Validate has seen that the command exists
	return nil
}
