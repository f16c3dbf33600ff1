// Package wait sleeps, and looks again and again, until something is so or
// nobody waits any more.
package wait

import (
	"context"
	"time"
)

// For returns after d, or with the cause when ctx ends before.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Until looks at once, and then after every interval, until look reports that it is
// so, fails, or ctx ends; of the last it returns the cause.
func Until(ctx context.Context, interval time.Duration, look func() (so bool, err error)) error {
	for {
		if so, err := look(); so || err != nil {
			return err
		}
		if err := For(ctx, interval); err != nil {
			return err
		}
	}
}
