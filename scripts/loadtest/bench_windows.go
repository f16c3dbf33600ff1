package main

import "errors"

// benchCmd starts a PostgreSQL under a Unix account, which this system has not.
type benchCmd struct{}

func (*benchCmd) Run() error {
	return errors.New("this needs a Unix system, for the servers it starts; run works here against servers started by hand")
}
