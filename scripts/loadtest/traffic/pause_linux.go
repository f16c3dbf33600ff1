package traffic

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newPauser sleeps by a timer of the kernel that Go's poller waits for: Go's own wake an idle process with a resolution of a millisecond,
// and nanosleep would keep its processor from the readers for up to ten. The two belong to one goroutine.
func newPauser() (sleep func(time.Duration), done func()) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return time.Sleep, func() {}
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	var expirations [8]byte
	return func(d time.Duration) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(d.Nanoseconds(), 1))}
		if unix.TimerfdSettime(fd, 0, &spec, nil) != nil {
			time.Sleep(d)
			return
		}
		_, _ = file.Read(expirations[:]) // one that is cut short is repeated by the caller
	}, func() { _ = file.Close() }
}
