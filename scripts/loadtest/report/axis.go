package report

import (
	"math"
	"strconv"

	"github.com/wcharczuk/go-chart/v2"
)

// axes are the ticks of both axes, which are also their ranges: two or more
// each, rising, the first and the last at or beyond the data.
func (p plot) axes() (x, y []chart.Tick) {
	low, high, last := math.Inf(1), 0.0, 0.0
	for _, l := range p.lines {
		for _, point := range l.points {
			last = max(last, point.At)
			high = max(high, point.Value)
			if point.Value > 0 {
				low = min(low, point.Value)
			}
		}
	}
	return p.across(last), p.upwards(low, high)
}

func (p plot) across(last float64) []chart.Tick {
	if p.labels == nil {
		return timeTicks(last)
	}
	ticks := make([]chart.Tick, len(p.labels))
	for i, label := range p.labels {
		ticks[i] = chart.Tick{Value: float64(i), Label: label}
	}
	return ticks
}

func (p plot) upwards(low, high float64) []chart.Tick {
	if p.log && high > 0 {
		return logTicks(low, high)
	}
	return linearTicks(high)
}

// linearTicks are four to seven ticks from 0 to at least high.
func linearTicks(high float64) []chart.Tick {
	if !(high > 0) {
		high = 1
	}
	step := niceStep(high / 5)
	var ticks []chart.Tick
	for i := 0.0; ; i++ {
		ticks = append(ticks, chart.Tick{Value: i * step, Label: tickLabel(i * step)})
		if i*step >= high*(1-1e-9) {
			return ticks
		}
	}
}

// logTicks are at 1, 2 and 5 of each decade, or the decades alone where those
// would be many. Values are logarithms.
func logTicks(low, high float64) []chart.Tick {
	mantissas := []float64{1, 2, 5}
	if math.Log10(high/low) > 2.5 {
		mantissas = []float64{1}
	}
	var ticks []chart.Tick
	for decade := math.Floor(math.Log10(low)); ; decade++ {
		for _, m := range mantissas {
			v := m * math.Pow(10, decade)
			t := chart.Tick{Value: math.Log10(v), Label: tickLabel(v)}
			if v <= low*(1+1e-9) {
				ticks = []chart.Tick{t} // none so far was needed
				continue
			}
			ticks = append(ticks, t)
			if v >= high*(1-1e-9) {
				return ticks
			}
		}
	}
}

// timeTicks are from 0 to the end of a run of that many seconds, in seconds,
// minutes or hours. The last one may lie beyond the end.
func timeTicks(last float64) []chart.Tick {
	unit, name := 1.0, " s"
	switch {
	case last > 3*3600:
		unit, name = 3600, " h"
	case last > 300:
		unit, name = 60, " min"
	}
	step := max(1, niceStep(last/unit/6))
	var ticks []chart.Tick
	for i := 0.0; ; i++ {
		ticks = append(ticks, chart.Tick{Value: i * step * unit, Label: tickLabel(i*step) + name})
		if i > 0 && i*step*unit >= last {
			break
		}
	}
	// The drawing ends with the run, unless the tick after it is close.
	if end := &ticks[len(ticks)-1]; end.Value > 1.1*last && last > ticks[len(ticks)-2].Value {
		*end = chart.Tick{Value: last}
	}
	return ticks
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*decade >= v*(1-1e-9) {
			return m * decade
		}
	}
	return 10 * decade
}

// tickLabel writes a round number short.
func tickLabel(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= 10*unit.size || (v >= unit.size && math.Mod(v, unit.size) == 0) {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
