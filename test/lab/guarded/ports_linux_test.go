package guarded

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"noncegate/test/lab/expect"
)

func TestAPortIsGivenToOneCallerWhoCanListenOnIt(t *testing.T) {
	if held := os.Getenv("RESERVED_PORT"); held != "" { // the other process, below
		if port, err := strconv.Atoi(held); err != nil || !errors.Is(reserve(port), syscall.EADDRINUSE) {
			t.Fatalf("port %s is reserved in another process, and was given again", held)
		}
		return
	}
	port, err := FreePort()
	expect.Must(t, err)
	if err := reserve(port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the port was given again: %v", err)
	}
	other := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(os.Environ(), "RESERVED_PORT="+strconv.Itoa(port))
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("another process: %v\n%s", err, out)
	}
	for range 2 { // a server that is started again, too
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		expect.Must(t, err)
		expect.Must(t, ln.Close())
	}
}
