//go:build !linux

package traffic

import "time"

// newPauser sleeps as exactly as this system's timers are.
func newPauser() (sleep func(time.Duration), done func()) { return time.Sleep, func() {} }
