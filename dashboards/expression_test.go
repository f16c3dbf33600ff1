package dashboards_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sample is one line of /metrics.
type sample struct {
	labels map[string]string
	value  string
}

// exposition is what a gateway exposes, by metric name.
type exposition map[string][]sample

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-zA-Z_]\w*)(?:\{(.*)\})? (\S+)$`)
	matcher    = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	selector   = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	notAName   = regexp.MustCompile(`\[[^\]]*\]|\b\w+\s*\(|\boffset\s+\S+|\b(?:and|or|unless|bool)\b`)
	name       = regexp.MustCompile(`\b[a-zA-Z_][\w:]*`)
)

// parseExposition reads the text format as client_golang writes it.
func parseExposition(text string) exposition {
	e := make(exposition)
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		s := sample{labels: make(map[string]string), value: line[3]}
		for _, m := range matcher.FindAllStringSubmatch(line[2], -1) {
			s.labels[m[1]] = m[3]
		}
		e[line[1]] = append(e[line[1]], s)
	}
	return e
}

// targetLabels are what Prometheus adds to each sample that it scrapes, and up
// is what it adds to the samples.
var targetLabels = map[string]bool{"job": true, "instance": true}

const up = "up"

// complaints says what expr asks for that neither the gateway nor one of the
// recording rules has. It reads names and labels, and does not judge the rest.
func (e exposition) complaints(expr string, recorded map[string]bool) []string {
	var found []string
	complain := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	for _, sel := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(sel[2], -1) {
			if !targetLabels[m[1]] && !e.matches(sel[1], m[1], m[2], m[3]) {
				complain("no %s has a label %s that is %q", sel[1], m[1], m[3])
			}
		}
	}
	rest := selector.ReplaceAllString(expr, "$1")
	var labels []string
	for _, g := range grouping.FindAllStringSubmatch(rest, -1) {
		labels = append(labels, name.FindAllString(g[1], -1)...)
	}
	metrics := name.FindAllString(notAName.ReplaceAllString(grouping.ReplaceAllString(rest, ""), " "), -1)
	if len(metrics) == 0 {
		complain("it asks for no metric")
	}
	for _, m := range metrics {
		if m != up && !recorded[m] && e[m] == nil {
			complain("there is no metric %s", m)
		}
	}
	for _, l := range labels {
		if !targetLabels[l] && !e.haveLabel(metrics, l) {
			complain("it groups by %s, which none of %v has", l, metrics)
		}
	}
	if strings.Contains(expr, "histogram_quantile") {
		found = append(found, e.quantileComplaints(metrics, labels)...)
	}
	return found
}

// quantileComplaints says why no percentile can be had of the metrics.
func (e exposition) quantileComplaints(metrics, labels []string) (found []string) {
	if !slices.Contains(labels, "le") {
		found = append(found, "a quantile needs the label le")
	}
	for _, m := range metrics {
		base, ok := strings.CutSuffix(m, "_bucket")
		if count := e[base+"_count"]; !ok || len(count) == 0 || count[0].value == "0" {
			found = append(found, fmt.Sprintf("%s is not a histogram that observed something", m))
		}
	}
	return found
}

// matches reports whether a sample of the metric has the value, so that the
// matcher tells samples apart. A value with a variable of Grafana's may be any.
func (e exposition) matches(metric, label, op, value string) bool {
	if op == "=" || op == "!=" {
		value = regexp.QuoteMeta(value)
	}
	want, err := regexp.Compile("^(?:" + value + ")$")
	if err != nil {
		return false
	}
	for _, s := range e[metric] {
		if have, ok := s.labels[label]; ok && (strings.Contains(value, "$") || want.MatchString(have)) {
			return true
		}
	}
	return false
}

func (e exposition) haveLabel(metrics []string, label string) bool {
	for _, m := range metrics {
		for _, s := range e[m] {
			if _, ok := s.labels[label]; ok {
				return true
			}
		}
	}
	return false
}

func TestAWrongExpressionIsFound(t *testing.T) {
	e := parseExposition(`# HELP x_total Things.
# TYPE x_total counter
x_total{stage="a"} 1
x_total{stage="b"} 0
x_seconds_bucket{le="+Inf"} 3
x_seconds_count 3
idle_seconds_bucket{le="+Inf"} 0
idle_seconds_count 0
`)
	recorded := map[string]bool{"instance:x:rate5m": true}
	for expr, want := range map[string]string{
		`sum by (stage) (rate(x_total{instance=~"$node"}[$__rate_interval]))`:          "",
		`x_total{stage=~"a|c", stage!="b"} / on (job) clamp_min(x_total, 1e-9) > 0.05`: "",
		`up{job="any"} == 0 or absent(up{job="any"})`:                                  "",
		`instance:x:rate5m > 0 unless x_total offset 5m`:                               "",
		`histogram_quantile(0.99, sum by (le) (rate(x_seconds_bucket[5m])))`:           "",

		`rate(y_total[5m])`:           "there is no metric y_total",
		`x_total + instance:y:rate5m`: "there is no metric instance:y:rate5m",
		`x_total{stage="c"}`:          `no x_total has a label stage that is "c"`,
		`x_total{reason="a"}`:         `no x_total has a label reason that is "a"`,
		`sum by (reason) (x_total)`:   "it groups by reason, which none of [x_total] has",
		`vector(1)`:                   "it asks for no metric",
		`histogram_quantile(0.99, rate(x_seconds_bucket[5m])) > 0 and on (job) x_seconds_bucket`: "a quantile needs the label le",
		`histogram_quantile(0.99, sum by (le) (rate(idle_seconds_bucket[5m])))`:                  "idle_seconds_bucket is not a histogram that observed something",
	} {
		if got := strings.Join(e.complaints(expr, recorded), "; "); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", expr, got, want)
		}
	}
}
