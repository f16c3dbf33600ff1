//go:build unix

package main

import "syscall"

// descriptorLimit is how many files and sockets the process may have open. The runtime
// has raised it as far as it may.
func descriptorLimit() (n uint64, known bool) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
