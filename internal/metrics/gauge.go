package metrics

import "github.com/prometheus/client_golang/prometheus"

// number is what a figure may be.
type number interface{ int | int64 | uint64 | float64 }

// Gauge registers a number that is read when Prometheus asks: the depth or the
// capacity of a queue. name is without the prefix noncegate_, in base units. f
// may be called at any time and from any goroutine. A name used twice panics.
func Gauge[N number](reg prometheus.Registerer, name, help string, f func() N) {
	reg.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 { return float64(f()) }))
}

// Counter registers a number that the caller counts. f is as for Gauge, and
// what it returns never falls.
func Counter[N number](reg prometheus.Registerer, name, help string, f func() N) {
	reg.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, func() float64 { return float64(f()) }))
}

// Slots registers how full a bounded stage is, beside its bound: the gauges NAME_slots_used
// and NAME_slots.
func Slots(reg prometheus.Registerer, name, what string, f func() (used, capacity int)) {
	Gauge(reg, name+"_slots_used", what+": slots taken.", func() int { used, _ := f(); return used })
	Gauge(reg, name+"_slots", what+": slots there are.", func() int { _, capacity := f(); return capacity })
}

// Seconds makes a histogram of durations and registers it, as NewCount does.
func Seconds(reg prometheus.Registerer, name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: secondsBuckets,
	})
	reg.MustRegister(h)
	return h
}

// Named is one gauge of a group. Name is without the prefix noncegate_.
type Named struct{ Name, Help string }

// Gauges registers numbers that are found by one look, such as a walk over all
// connections. read is called once each time Prometheus asks, from any goroutine;
// it returns one value for each name, in order. A name used twice panics.
func Gauges(reg prometheus.Registerer, names []Named, read func() []float64) {
	g := &group{read: read}
	for _, n := range names {
		g.descs = append(g.descs, prometheus.NewDesc(prometheus.BuildFQName(namespace, "", n.Name), n.Help, nil, nil))
	}
	reg.MustRegister(g)
}

// group is a prometheus.Collector of several gauges.
type group struct {
	descs []*prometheus.Desc
	read  func() []float64
}

// Describe implements prometheus.Collector.
func (g *group) Describe(to chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g *group) Collect(to chan<- prometheus.Metric) {
	for i, v := range g.read() {
		to <- prometheus.MustNewConstMetric(g.descs[i], prometheus.GaugeValue, v)
	}
}
