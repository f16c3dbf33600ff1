package traffic

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newPauser sleeps by a timer of the kernel that Go's poller waits for. Go's own
// timers wake an idle process with a resolution of a millisecond; and nanosleep
// would keep its processor from the readers for up to ten, until the runtime
// notices that it is gone.
func newPauser() *pauser {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &pauser{sleep: time.Sleep, close: func() {}}
	}
	file := os.NewFile(uintptr(fd), "timerfd")
	var expirations [8]byte
	return &pauser{
		sleep: func(d time.Duration) {
			spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(d.Nanoseconds(), 1))}
			if unix.TimerfdSettime(fd, 0, &spec, nil) != nil {
				time.Sleep(d)
				return
			}
			_, _ = file.Read(expirations[:]) // one that is cut short is repeated by the caller
		},
		close: func() { _ = file.Close() },
	}
}
