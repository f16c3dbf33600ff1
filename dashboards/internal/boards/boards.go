// Package boards holds the Grafana dashboards as Go values: what is asked of
// Prometheus, and what the answer means. It knows Grafana's classic model in one
// place (grafana.go), so that the dashboards look alike and say no more than what
// differs.
//
// It promises that every panel has a title, a description, a unit and an id, and
// that each query is narrowed to the chosen instances. It does not promise that
// the queries have an answer: the tests of package dashboards ask them.
//
// Everything is a pure function; there are no goroutines.
package boards

import (
	"fmt"
	"strings"
	"time"
)

// Board is one dashboard.
type Board struct {
	File        string // its name in the folder dashboards
	UID         string // by which Grafana knows it from one import to the next
	Title       string
	Description string
	Rows        []Row
}

// Row is the panels about one subject.
type Row struct {
	Title string
	// Needs is the setting, or what else, without which the row has nothing to show; ""
	// where there always is something. Such a row is collapsed until somebody opens it.
	Needs  string
	Panels []Panel
}

// Kind is how a panel shows its answers.
type Kind string

// The kinds of panels.
const (
	Graph Kind = "timeseries" // lines over time
	Stat  Kind = "stat"       // one number, of now
)

// Panel shows the answers of some queries.
type Panel struct {
	Kind        Kind
	Title       string // what is shown
	Description string // what it means, and what to do about it
	Unit        string // by Grafana's name for it
	Orange, Red float64
	Queries     []Query
}

// Query is one question to Prometheus.
type Query struct {
	Expr   string // with the variables of Grafana
	Legend string // a label in braces, {{reason}}, stands for its value
}

// All are the dashboards, in the order in which a person opens them.
func All() []Board { return []Board{overview(), connections(), store(), chains(), engine()} }

// Ask is a query's expression as Prometheus takes it: of all instances, and with
// rates taken over interval.
func (q Query) Ask(interval time.Duration) string {
	return strings.NewReplacer(
		"$"+instanceVariable, ".*",
		"$__rate_interval", fmt.Sprintf("%dms", interval.Milliseconds()),
	).Replace(q.Expr)
}

// instanceVariable is the choice of instances at the top of each dashboard.
const instanceVariable = "instance"

// of is a metric of the chosen instances. Names are without the prefix
// noncegate_, except those of the Go runtime and the process.
func of(metric string) string {
	if !strings.HasPrefix(metric, "go_") && !strings.HasPrefix(metric, "process_") {
		metric = "noncegate_" + metric
	}
	return metric + `{` + instanceVariable + `=~"$` + instanceVariable + `"}`
}

// with is a metric of the chosen instances where a label has a value.
func with(metric, label, value string) string {
	return strings.TrimSuffix(of(metric), "}") + fmt.Sprintf(`, %s=%q}`, label, value)
}

// among is a metric of the chosen instances where a label has one of some values, with
// a bar between.
func among(metric, label, values string) string {
	return strings.TrimSuffix(of(metric), "}") + fmt.Sprintf(`, %s=~%q}`, label, values)
}

// each is how fast a counter grows, a second.
func each(selector string) string { return "rate(" + selector + "[$__rate_interval])" }

// sum adds up over all instances, or by the labels.
func sum(expr string, by ...string) string { return aggregate("sum", expr, by) }

// highest is that of the instance that has most.
func highest(expr string, by ...string) string { return aggregate("max", expr, by) }

func aggregate(how, expr string, by []string) string {
	if len(by) > 0 {
		how += " by (" + strings.Join(by, ", ") + ") "
	}
	return how + "(" + expr + ")"
}

// share is a part of a whole that may be 0.
func share(part, whole string) string { return part + " / clamp_min(" + whole + ", 1e-9)" }

// quantile is a percentile of a histogram, of all chosen instances together.
func quantile(q float64, metric string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, sum(each(of(metric+"_bucket")), "le"))
}

// percentiles are those that are worth a line.
func percentiles(metric string) []Query {
	return []Query{
		{quantile(0.5, metric), "p50"},
		{quantile(0.95, metric), "p95"},
		{quantile(0.99, metric), "p99"},
	}
}

// byLabel is one line for each value of a counter's label.
func byLabel(metric, label string) []Query {
	return []Query{{sum(each(of(metric)), label), "{{" + label + "}}"}}
}

// byInstance is one line for each node.
func byInstance(selector string) []Query {
	return []Query{{sum(selector, instanceVariable), "{{" + instanceVariable + "}}"}}
}

// graph is a panel of lines.
func graph(title, unit, description string, queries ...Query) Panel {
	return Panel{Kind: Graph, Title: title, Unit: unit, Description: description, Queries: queries}
}

// stat is a panel of one number, orange and red from the values given; 0: never.
func stat(title, unit string, orange, red float64, expr, description string) Panel {
	return Panel{
		Kind: Stat, Title: title, Unit: unit, Orange: orange, Red: red, Description: description,
		Queries: []Query{{Expr: expr}},
	}
}
