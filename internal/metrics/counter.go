package metrics

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Count is a number that only grows.
type Count struct {
	prometheus.CounterFunc
	n atomic.Uint64
}

// Inc adds one.
func (c *Count) Inc() { c.n.Add(1) }

// Add adds n, which is not negative.
func (c *Count) Add(n int) { c.n.Add(uint64(n)) }

// Load is the number now.
func (c *Count) Load() int64 { return int64(c.n.Load()) }

// NewCount makes a counter and registers it. name is without the prefix noncegate_.
// A name used twice panics.
func NewCount(reg prometheus.Registerer, name, help string) *Count {
	c := newCount(name, help, nil)
	reg.MustRegister(c)
	return c
}

func newCount(name, help string, labels prometheus.Labels) *Count {
	c := new(Count)
	opts := prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}
	c.CounterFunc = prometheus.NewCounterFunc(opts, func() float64 { return float64(c.n.Load()) })
	return c
}

// Level is a number that goes up and down.
type Level struct{ n atomic.Int64 }

// Add raises the level by delta, or lowers it where delta is negative.
func (l *Level) Add(delta int64) { l.n.Add(delta) }

// Set makes the level 1 or 0.
func (l *Level) Set(on bool) {
	var n int64
	if on {
		n = 1
	}
	l.n.Store(n)
}

// NewLevel makes a gauge and registers it, as NewCount does.
func NewLevel(reg prometheus.Registerer, name, help string) *Level {
	l := new(Level)
	Gauge(reg, name, help, func() float64 { return float64(l.n.Load()) })
	return l
}

// Family is one counter for each value of a label, of which there is a closed set.
type Family[L ~string] struct {
	each       map[L]*Count // never written after NewFamily
	undeclared *Count       // what was counted under a value outside the set
}

// NewFamily makes the counters of a label's values and registers them, as NewCount does.
func NewFamily[L ~string](reg prometheus.Registerer, name, label, help string, values ...L) Family[L] {
	f := Family[L]{each: make(map[L]*Count, len(values)), undeclared: undeclaredOf(reg)}
	for _, v := range values {
		c := newCount(name, help, prometheus.Labels{label: string(v)})
		reg.MustRegister(c)
		f.each[v] = c
	}
	return f
}

// undeclaredOf is the one counter of a registry that all of its families share.
func undeclaredOf(reg prometheus.Registerer) *Count {
	c := newCount("undeclared_labels_total", "Events counted nowhere else because nobody declared their label value; any is a mistake of the program.", nil)
	err := reg.Register(c)
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return registered.ExistingCollector.(*Count)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// Inc adds one under a value.
func (f *Family[L]) Inc(value L) { f.Of(value).Inc() }

// Add adds n under a value.
func (f *Family[L]) Add(value L, n int) { f.Of(value).Add(n) }

// Of is the counter of a value. It never makes a time series: a value that was not declared
// is a mistake of the program, to be seen in undeclared_labels_total, but not worth a panic.
func (f *Family[L]) Of(value L) *Count {
	if c, ok := f.each[value]; ok {
		return c
	}
	return f.undeclared
}

func (f *Family[L]) sum(values []L) (sum int64) {
	for _, v := range values {
		sum += f.each[v].Load()
	}
	return sum
}
