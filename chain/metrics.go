package chain

import (
	"github.com/prometheus/client_golang/prometheus"

	figures "noncegate/internal/metrics"
	"noncegate/nonce"
)

// metrics are what a Tracker counts, each with the chain as a label: chains are
// settings, and few.
type metrics struct {
	events                          *prometheus.CounterVec
	ended, lower, absurd, disagreed *figures.Count
}

func newMetrics(t *Tracker, reg prometheus.Registerer) *metrics {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"chain": t.chain.ID()}, reg)
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noncegate_chain_events_total", Help: "What the chain said of signers of this node, by type of event.",
		}, []string{"type"}),
		ended: figures.NewCount(reg, "chain_holds_ended_total",
			"Holds that were unknown and ended because a node showed that the nonce was used."),
		lower: figures.NewCount(reg, "chain_lower_counts_total",
			"Counts below one that was seen, without a reorganization. They are not believed."),
		absurd: figures.NewCount(reg, "chain_absurd_counts_total",
			"Counts of one node alone that are higher than the chain can have come to. They are not believed."),
		disagreed: figures.NewCount(reg, "chain_final_disagreements_total",
			"Counts at the final block about which nodes disagreed. Nothing follows from them."),
	}
	reg.MustRegister(m.events)
	for _, typ := range []nonce.EventType{nonce.EventMined, nonce.EventFinal, nonce.EventDropped, nonce.EventGap, nonce.EventGapClosed,
		nonce.EventExternal, nonce.EventReorg, nonce.EventStuck} {
		m.events.WithLabelValues(typ.String())
	}
	gauge := func(name, help string, value func() int) { figures.Gauge(reg, "chain_"+name, help, value) }
	length := func(list func() int) func() int {
		return func() int {
			t.mu.Lock()
			defer t.mu.Unlock()
			return list()
		}
	}
	gauge("signers", "Signers of the chain that this node remembers.", length(func() int { return len(t.signers) }))
	gauge("open_signers", "Signers of this node with nonces that the chain has not used.", length(func() int { return len(t.open) }))
	gauge("waiting_signers", "New signers that wait for the first answer of a node.", length(func() int { return len(t.asking) }))
	for _, kind := range []struct {
		of         nonce.WatchKind
		name, help string
	}{
		{nonce.WatchGap, "gaps", "Signers of this node that a nonce blocks which no node has seen."},
		{nonce.WatchDropped, "dropped", "Signers of this node whose last transaction no node has any more."},
		{nonce.WatchStuck, "stuck", "Signers of this node whose next transaction is in pools and is not mined for long."},
		{nonce.WatchAsIs, "unknown_holds", "Holds of this node that are over and of which nobody knows whether they were used."},
	} {
		gauge(kind.name, kind.help, func() int { return t.countOpen(kind.of) })
	}
	gauge("stopped", "1: the final block fell, and nothing is done by itself for this chain.", func() int {
		if t.stopped.Load() {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) event(t nonce.EventType) { m.events.WithLabelValues(t.String()).Inc() }

// countOpen counts the signers that are kept so; with WatchAsIs, unknown holds.
func (t *Tracker) countOpen(kind nonce.WatchKind) (count int) {
	for _, s := range t.openSigners() {
		if !s.owned.Load() {
			continue
		}
		s.mu.Lock()
		if s.gap != nil && s.gap.Kind == kind {
			count++
		}
		for _, k := range s.notes {
			if kind == nonce.WatchAsIs && k.unknown {
				count++
			}
		}
		s.mu.Unlock()
	}
	return count
}
