package ws

import (
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/writer"
)

// registerGauges registers what is read when Prometheus asks.
func (s *Server) registerGauges(reg prometheus.Registerer) {
	number := func(name, help string, n int) {
		metrics.Gauge(reg, name, help, func() float64 { return float64(n) })
	}
	metrics.Slots(reg, "inflight", "Requests not answered yet", s.clients.used)
	metrics.Gauge(reg, "receive_bytes", "Bytes of messages above 8 KiB that are being received, or by /eth/CHAIN are not answered yet.",
		func() float64 { return float64(s.receiving.shares.Taken()) })
	number("receive_bytes_max", "Most of them.", int(s.cfg.MaxReceiveBytes))
	metrics.Gauge(reg, "receive_waiting",
		"Messages that wait unread because as many bytes are being received as may, or as their principal may.",
		func() float64 { return float64(s.receiving.shares.Waits()) })
	number("connections_max", "Most open WebSocket connections.", s.cfg.MaxConnections)
	metrics.Gauge(reg, "sockets_waiting", "Open sockets whose clients were not let in yet. 0 without --rights.",
		func() float64 { return float64(s.Waiting()) })
	number("sockets_waiting_max", "Most of them.", s.cfg.Addresses.Waiting)
	metrics.Gauges(reg, outboundGauges, s.outbound)
}

// outboundGauges are what waits for clients to read.
var outboundGauges = []metrics.Named{
	{Name: "outbound_bytes", Help: "Bytes that wait for clients to read: queued, encoded or being written, over all connections."},
	{Name: "outbound_promised_bytes",
		Help: "Bytes of --write-max-bytes that are promised to answers whose work is under way, over all connections."},
	{Name: "outbound_messages", Help: "Messages that wait for clients to read, and answers under way, over all connections."},
	{Name: "outbound_largest_bytes", Help: "Bytes that wait for the client that has most."},
	{Name: "connections_paused", Help: "Connections that are not read now because their clients do not read."},
}

// outbound is what waits for clients to read, over all open connections, in the order of
// outboundGauges. It looks at every connection, so it is for whoever looks now and then; it
// keeps each up for a moment only.
func (s *Server) outbound() []float64 {
	var sum writer.Depth
	var largest int64
	paused := 0
	for _, c := range s.conns.all() {
		d := c.out.Depth()
		sum.Bytes += d.Bytes
		sum.Promised += d.Promised
		sum.Messages += d.Messages
		largest = max(largest, d.Bytes)
		if d.Paused {
			paused++
		}
	}
	return []float64{float64(sum.Bytes), float64(sum.Promised), float64(sum.Messages), float64(largest), float64(paused)}
}
