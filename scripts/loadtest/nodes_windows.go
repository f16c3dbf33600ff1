package main

// nodesCmd is as benchCmd.
type nodesCmd struct{}

// Run implements the command.
func (*nodesCmd) Run() error { return errUnixOnly }
