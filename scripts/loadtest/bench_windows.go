package main

import (
	"context"
	"errors"
	"io"
)

// benchCommand starts a PostgreSQL under a Unix account, which this system has
// not.
func benchCommand(context.Context, []string, io.Writer) error {
	return errors.New("bench needs a Unix system; run works here against servers started by hand")
}
