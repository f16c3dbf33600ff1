package guarded

import "syscall"

// reserve takes a port of the loopback interface for as long as this process lives: it stays bound by a socket that does not
// listen. Linux lets a server that sets SO_REUSEADDR, as all of them do, bind it and listen beside such a socket, but only when
// that set the option as well. It is set after bind, so that bind fails where the port is reserved or used by anybody.
func reserve(port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = syscall.Close(fd)
	}
	return err
}
