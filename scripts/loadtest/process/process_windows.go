package process

import (
	"fmt"
	"os"
	"syscall"
)

// ctrlBreakEvent is what a Go program takes as os.Interrupt, and the only one that can be sent to one group of processes.
const ctrlBreakEvent = 1

var generateConsoleCtrlEvent = syscall.NewLazyDLL("kernel32.dll").NewProc("GenerateConsoleCtrlEvent")

// ownGroup keeps the console's Ctrl-C from the child, and makes it one that can be asked to end.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func askToEnd(p *os.Process) error {
	if ok, _, err := generateConsoleCtrlEvent.Call(ctrlBreakEvent, uintptr(p.Pid)); ok == 0 {
		return fmt.Errorf("GenerateConsoleCtrlEvent: %w", err)
	}
	return nil
}

// killGroup ends the child. Windows knows no way to end what it has started.
func killGroup(p *os.Process) { p.Kill() }
