package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"A command, such as key create. Without one, everything is shown."`
}

// Validate reports a command that does not exist.
func (c *helpCmd) Validate(kctx *kong.Context) error {
	node := kctx.Model.Node
	for i, name := range c.Command {
		at := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no command %q; gateway help lists them", strings.Join(c.Command[:i+1], " "))
		}
		node = node.Children[at]
	}
	return nil
}

// Run implements the command: it is the same as the other one with --help.
func (c *helpCmd) Run(ctx context.Context, p *program) error {
	p.run(ctx, append(slices.Clone(c.Command), "--help")) // Validate has seen that the command exists
	return nil
}

// help prints the help of a command; without one, the list of commands and the
// reference of serve, whose flags need no command.
func help(options kong.HelpOptions, kctx *kong.Context) error {
	if kctx.Selected() != nil {
		return kong.DefaultHelpPrinter(options, kctx)
	}
	if err := kong.DefaultHelpPrinter(options, kctx); err != nil {
		return err
	}
	fmt.Fprintln(kctx.Stdout)
	serve := kctx.Model.DefaultCmd
	withServe := *kctx
	withServe.Path = append(kctx.Path[:len(kctx.Path):len(kctx.Path)], &kong.Path{Parent: kctx.Model.Node, Command: serve, Flags: serve.Flags})
	return kong.DefaultHelpPrinter(options, &withServe)
}
