package chaintest

import "time"

// pollDeadline is a net; nothing waits for it when things work.
const pollDeadline = 30 * time.Second

// poll asks until it is so, for what gives no signal.
func poll(t T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(pollDeadline); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about within %v that %s", pollDeadline, what)
		}
	}
}
