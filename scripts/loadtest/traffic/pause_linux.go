package traffic

import (
	"syscall"
	"time"
)

// pause sleeps by the system's own timer: Go's wakes an idle process with a
// resolution of a millisecond.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	syscall.Nanosleep(&t, nil) // one that is cut short is repeated by the caller
}
