package verify_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// cutter stands between a load and a gateway, and cuts each connection off after
// a number of bytes of answers, so that requests were carried out whose answer
// never comes. It returns the address of the gateway through it.
func cutter(t *testing.T, url string) string {
	t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(url, "ws://"), "/ws")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", host)
			if err != nil {
				t.Error(err)
				near.Close()
				return
			}
			running.Go(func() { io.Copy(far, near) })
			running.Go(func() {
				io.CopyN(near, far, 50_000)
				near.Close()
				far.Close()
			})
		}
	})
	return "ws://" + l.Addr().String() + "/ws"
}
