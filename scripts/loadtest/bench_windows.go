package main

import "errors"

var errUnixOnly = errors.New("this needs a Unix system, for the servers it starts; run works here against servers started by hand")

// unixOnly starts a PostgreSQL under a Unix account, which this system has not.
type unixOnly struct{}

func (*unixOnly) Run() error { return errUnixOnly }

type (
	benchCmd = unixOnly
	scaleCmd = unixOnly
	nodesCmd = unixOnly
)
