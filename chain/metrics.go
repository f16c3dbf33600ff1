package chain

import (
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/nonce"
)

// metrics are what a Tracker counts, each with the chain as a label: chains are
// settings, and few.
type metrics struct {
	events    *prometheus.CounterVec
	ended     prometheus.Counter
	lower     prometheus.Counter
	absurd    prometheus.Counter
	disagreed prometheus.Counter
}

func newMetrics(t *Tracker, reg prometheus.Registerer) *metrics {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"chain": t.chain.ID()}, reg)
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noncegate_chain_events_total", Help: "What the chain said of signers of this node, by type of event.",
		}, []string{"type"}),
		ended:     counter("noncegate_chain_holds_ended_total", "Holds that were unknown and ended because a node showed that the nonce was used."),
		lower:     counter("noncegate_chain_lower_counts_total", "Counts below one that was seen, without a reorganization. They are not believed."),
		absurd:    counter("noncegate_chain_absurd_counts_total", "Counts of one node alone that are higher than the chain can have come to. They are not believed."),
		disagreed: counter("noncegate_chain_final_disagreements_total", "Counts at the final block about which nodes disagreed. Nothing follows from them."),
	}
	reg.MustRegister(m.events)
	for _, typ := range []nonce.EventType{nonce.EventMined, nonce.EventFinal, nonce.EventDropped, nonce.EventGap, nonce.EventGapClosed, nonce.EventExternal, nonce.EventReorg, nonce.EventStuck} {
		m.events.WithLabelValues(typ.String())
	}
	gauge("noncegate_chain_signers", "Signers of the chain that this node remembers.", func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(len(t.signers))
	})
	gauge("noncegate_chain_open_signers", "Signers of this node with nonces that the chain has not used.", func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(len(t.open))
	})
	gauge("noncegate_chain_gaps", "Signers of this node that a nonce blocks which no node has seen.", func() float64 { return t.countOpen(nonce.WatchGap) })
	gauge("noncegate_chain_dropped", "Signers of this node whose last transaction no node has any more.", func() float64 { return t.countOpen(nonce.WatchDropped) })
	gauge("noncegate_chain_stuck", "Signers of this node whose next transaction is in pools and is not mined for long.", func() float64 { return t.countOpen(nonce.WatchStuck) })
	gauge("noncegate_chain_unknown_holds", "Holds of this node that are over and of which nobody knows whether they were used.", func() float64 { return t.countOpen(nonce.WatchAsIs) })
	gauge("noncegate_chain_waiting_signers", "New signers that wait for the first answer of a node.", func() float64 {
		t.mu.Lock()
		defer t.mu.Unlock()
		return float64(len(t.asking))
	})
	gauge("noncegate_chain_stopped", "1: the final block fell, and nothing is done by itself for this chain.", func() float64 {
		if t.stopped.Load() {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) event(t nonce.EventType) { m.events.WithLabelValues(t.String()).Inc() }

// countOpen counts the signers that are kept so; with WatchAsIs, unknown holds.
func (t *Tracker) countOpen(kind nonce.WatchKind) (count float64) {
	t.mu.Lock()
	open := make([]*signer, 0, len(t.open))
	for s := range t.open {
		open = append(open, s)
	}
	t.mu.Unlock()
	for _, s := range open {
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
