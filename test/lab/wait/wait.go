// Package wait is how tests wait for what must happen, and fail if it does not.
package wait

import (
	"testing"
	"time"
)

// Patience is the safety net of every wait: nothing waits for it when things work.
const Patience = 45 * time.Second

// For returns what comes from a channel, or its zero value when that is closed.
func For[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatal("timed out waiting for " + what)
		panic("unreachable")
	}
}

// Until returns when something is so that nothing tells of: it looks every millisecond.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); time.Sleep(time.Millisecond) {
		if time.Since(began) > Patience {
			t.Fatal("timed out waiting for " + what)
		}
	}
}
