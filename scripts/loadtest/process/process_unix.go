//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ownGroup keeps the terminal's ^C from the child: it is ended by Stop, in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// killGroup ends the child and what it has started, and waits up to a second until all is gone, with its ports: a zombie may stay longer.
func killGroup(p *os.Process) {
	syscall.Kill(-p.Pid, syscall.SIGKILL) // an error means that all have ended
	p.Kill()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if errors.Is(syscall.Kill(-p.Pid, 0), syscall.ESRCH) {
			return
		}
	}
}
