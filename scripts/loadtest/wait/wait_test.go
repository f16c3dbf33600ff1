package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errOver = errors.New("over")

func TestForEndsWithItsTimeOrWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errOver)
		defer cancel()
		began := time.Now()
		if err := For(ctx, 2*time.Second); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v, want 2s and no error", time.Since(began), err)
		}
		if err := For(ctx, 2*time.Second); err != errOver || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v, want the cause at the end of the context", time.Since(began), err)
		}
	})
}

func TestUntilLooksAgainUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errOver)
		defer cancel()
		began, looks := time.Now(), 0
		err := Until(ctx, time.Second, func() (bool, error) { looks++; return looks == 3, nil })
		if err != nil || looks != 3 || time.Since(began) != 2*time.Second {
			t.Errorf("%d looks in %v, %v; want 3 in 2s", looks, time.Since(began), err)
		}
		broken := errors.New("broken")
		if err := Until(ctx, time.Second, func() (bool, error) { return false, broken }); err != broken {
			t.Errorf("a look that fails: %v", err)
		}
		if err := Until(ctx, time.Second, func() (bool, error) { return false, nil }); err != errOver {
			t.Errorf("what is never so: %v", err)
		}
	})
}
