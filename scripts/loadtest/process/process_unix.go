//go:build unix

package process

import (
	"os"
	"syscall"
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
