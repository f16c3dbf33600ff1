package main

import "errors"

var errUnixOnly = errors.New("this needs a Unix system, for the servers it starts; run works here against servers started by hand")

// benchCmd starts a PostgreSQL under a Unix account, which this system has not.
type benchCmd struct{}

// Run implements the command.
func (*benchCmd) Run() error { return errUnixOnly }

// scaleCmd is as benchCmd.
type scaleCmd struct{}

// Run implements the command.
func (*scaleCmd) Run() error { return errUnixOnly }

// nodesCmd is as benchCmd.
type nodesCmd struct{}

// Run implements the command.
func (*nodesCmd) Run() error { return errUnixOnly }
