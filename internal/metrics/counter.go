package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Count is a figure that only grows.
type Count struct{ n atomic.Uint64 }

// Inc adds one.
func (c *Count) Inc() { c.n.Add(1) }

// Add adds n, which is not negative.
func (c *Count) Add(n int) { c.n.Add(uint64(n)) }

func newCount(reg prometheus.Registerer, name, help string) *Count {
	c := new(Count)
	c.register(reg, prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	return c
}

func (c *Count) register(reg prometheus.Registerer, opts prometheus.CounterOpts) {
	reg.MustRegister(prometheus.NewCounterFunc(opts, func() float64 { return float64(c.n.Load()) }))
}

// Level is a figure that goes up and down.
type Level struct{ n atomic.Int64 }

// Add raises the level by delta, or lowers it where delta is negative.
func (l *Level) Add(delta int64) { l.n.Add(delta) }

// Set makes the level n.
func (l *Level) Set(n int64) { l.n.Store(n) }

func newLevel(reg prometheus.Registerer, name, help string) *Level {
	l := new(Level)
	reg.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help},
		func() float64 { return float64(l.n.Load()) }))
	return l
}

// family is one counter for each value of a closed set of label values.
type family[L ~string] struct {
	each       map[L]*Count // never written after newFamily
	undeclared *Count       // what was counted under a value outside the set
}

func newFamily[L ~string](reg prometheus.Registerer, undeclared *Count, name, label, help string, values []L) family[L] {
	each := make(map[L]*Count, len(values))
	for _, v := range values {
		c := new(Count)
		c.register(reg, prometheus.CounterOpts{
			Namespace: namespace, Name: name, Help: help,
			ConstLabels: prometheus.Labels{label: string(v)},
		})
		each[v] = c
	}
	return family[L]{each: each, undeclared: undeclared}
}

// add never makes a time series: a value that nobody declared is a mistake of
// the program, to be seen, but not worth a panic.
func (f *family[L]) add(value L, n int) {
	f.of(value).Add(n)
}

// of is the counter of a value, or that of what nobody declared.
func (f *family[L]) of(value L) *Count {
	if c, ok := f.each[value]; ok {
		return c
	}
	return f.undeclared
}

func (f *family[L]) sum(values []L) int64 {
	var sum uint64
	for _, v := range values {
		sum += f.each[v].n.Load()
	}
	return int64(sum)
}
