// Package expect has what tests of many packages compare with: errors, figures, and what is logged.
package expect

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Must ends the test with an error, if there is one.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check fails the test with an error, if there is one.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Metric is the value of a counter or gauge, or the sum of a histogram, written as name{label value}{…} without the
// prefix. A label "chain", which each series of a chain has, is left out.
func Metric(t testing.TB, from prometheus.Gatherer, series string) float64 {
	t.Helper()
	families, err := from.Gather()
	Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "noncegate_")
			for _, l := range m.GetLabel() {
				if l.GetName() != "chain" {
					name += "{" + l.GetValue() + "}"
				}
			}
			if name == series {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	t.Fatalf("there is no series %s", series)
	return 0
}

// Metrics fails unless the series have these values.
func Metrics(t testing.TB, from prometheus.Gatherer, want map[string]float64) {
	t.Helper()
	for series, want := range want {
		if got := Metric(t, from, series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

// Buffer keeps what is logged.
type Buffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
