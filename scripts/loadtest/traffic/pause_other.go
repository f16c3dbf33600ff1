//go:build !linux

package traffic

import "time"

// pause sleeps as exactly as this system's timers are.
func pause(d time.Duration) { time.Sleep(d) }
