//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// ownGroup keeps the terminal's ^C from the child: it is ended by Stop, in
// order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// killGroup ends the child and what it has started. An error means that all
// have ended.
func killGroup(p *os.Process) {
	syscall.Kill(-p.Pid, syscall.SIGKILL)
	p.Kill()
}

// awaitGroup waits until what the child has started is gone, too, with its ports: it ends a
// little after it was killed. A zombie that nobody reaps is not waited for longer than a second.
func awaitGroup(p *os.Process) {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if errors.Is(syscall.Kill(-p.Pid, 0), syscall.ESRCH) {
			return
		}
	}
}
