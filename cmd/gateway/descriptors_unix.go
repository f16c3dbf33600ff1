//go:build unix

package main

import "golang.org/x/sys/unix"

// descriptorLimit is how many files and sockets the process may have open. The runtime
// has raised it as far as it may.
func descriptorLimit() (n uint64, known bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
