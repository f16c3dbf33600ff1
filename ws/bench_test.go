package ws

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// rawClient upgrades by hand and costs the process nearly nothing, so that what
// is measured is the server's.
func rawClient(t testing.TB, address string) net.Conn {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(c, handshake+"\r\n")
	if err != nil {
		t.Fatal(err)
	}
	var head [4096]byte
	n, err := c.Read(head[:])
	if err != nil || !strings.Contains(string(head[:n]), http.StatusText(http.StatusSwitchingProtocols)) {
		t.Fatalf("%s %v", head[:n], err)
	}
	return c
}

// BenchmarkIdleConnection reports what a connection that was used once holds in
// heap and stacks.
func BenchmarkIdleConnection(b *testing.B) {
	const connections = 2000
	g := startGateway(b, func(s *setup) { s.ws.MaxConnections = connections })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	open := make([]net.Conn, connections)
	for b.Loop() {
		for i := range open {
			open[i] = rawClient(b, g.address)
			if _, err := open[i].Write(text(`{"jsonrpc":"2.0","id":1,"method":"nonce_status","params":["a"]}`)); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadAtLeast(open[i], make([]byte, 4096), 100); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		used := after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse
		b.ReportMetric(float64(used)/connections, "B/conn")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/connections, "stackB/conn")
		for _, c := range open {
			_ = c.Close()
		}
		<-g.srv.conns.whenEmpty()
	}
}

// BenchmarkRequest is one allocation after another on one connection, without
// the store's disk.
func BenchmarkRequest(b *testing.B) {
	g := startGateway(b)
	c := rawClient(b, g.address)
	defer c.Close()
	frame := text(`{"jsonrpc":"2.0","id":1,"method":"nonce_setFloor","params":["a",5]}`)
	reply := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(reply); err != nil {
			b.Fatal(err)
		}
	}
}
