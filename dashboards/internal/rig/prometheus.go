//go:build unix

package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/internal/testenv/guarded"
)

// Prometheus is a server that scrapes gateways, as the job noncegate.
type Prometheus struct {
	URL     string
	targets int
	process *guarded.Process
	http    *http.Client
}

// Find returns the path of a program of Prometheus' package, or an error that
// says what to install.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%s is not in PATH: install Prometheus (Debian and Ubuntu: apt-get install prometheus): %w", program, err)
	}
	return path, nil
}

// PrometheusConfig is what a server is to do.
type PrometheusConfig struct {
	Targets []string      // host:port of each gateway's /metrics: the instances node-1, node-2 and so on
	Rules   string        // path of a file of rules; "": none
	Every   time.Duration // between two scrapes, and two evaluations of the rules
}

const config = `
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[2]s]
scrape_configs:
  - job_name: noncegate
    static_configs: [%[3]s]
`

// StartPrometheus starts a server on a free port of 127.0.0.1, with its data in
// the room, and returns once it is ready. Stop ends it; so does the end of the room.
func StartPrometheus(ctx context.Context, room *guarded.Room, c PrometheusConfig) (*Prometheus, error) {
	program, err := Find("prometheus")
	if err != nil {
		return nil, err
	}
	rules := ""
	if c.Rules != "" {
		rules = strconv.Quote(c.Rules)
	}
	every := fmt.Sprintf("%dms", c.Every.Milliseconds())
	// The ports are others each time; the names are not.
	targets := make([]string, len(c.Targets))
	for i, t := range c.Targets {
		targets[i] = fmt.Sprintf("{targets: [%q], labels: {instance: node-%d}}", t, i+1)
	}
	if err := room.WriteFile("prometheus.yml", fmt.Sprintf(config, every, rules, strings.Join(targets, ", "))); err != nil {
		return nil, err
	}
	address, err := guarded.FreeAddr()
	if err != nil {
		return nil, err
	}
	p, err := room.Start("prometheus.log", nil, program, "--config.file=prometheus.yml", "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(room.Dir(), "tsdb"), "--log.level=warn")
	if err != nil {
		return nil, err
	}
	// A connection for each question: none is left open at the end.
	s := &Prometheus{URL: "http://" + address, targets: len(c.Targets), process: p, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	err = p.Await(ctx, again, func(ctx context.Context) error {
		_, err := s.get(ctx, "/-/ready", nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("start prometheus: %w", err)
	}
	return s, nil
}

// Stop ends the server in order.
func (s *Prometheus) Stop() error { return end(s.process, "prometheus") }

// Sample is a value at a time.
type Sample struct {
	At    time.Time
	Value float64
}

// Series is one series of an answer.
type Series struct {
	Labels  map[string]string
	Samples []Sample // one where the question was about a moment
}

// Number reports whether any sample is a number, as a percentile of nothing is not.
func (s Series) Number() bool {
	for _, v := range s.Samples {
		if !math.IsNaN(v.Value) {
			return true
		}
	}
	return false
}

// Query asks for the value of an expression now.
func (s *Prometheus) Query(ctx context.Context, expr string) ([]Series, error) {
	return s.query(ctx, "/api/v1/query", url.Values{"query": {expr}})
}

// QueryRange asks for the values of an expression between two times.
func (s *Prometheus) QueryRange(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error) {
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	return s.query(ctx, "/api/v1/query_range", url.Values{
		"query": {expr}, "start": {at(from)}, "end": {at(to)}, "step": {fmt.Sprintf("%g", step.Seconds())},
	})
}

// AwaitScrapes waits until n scrapes of each gateway are stored. The rules are
// evaluated as often.
func (s *Prometheus) AwaitScrapes(ctx context.Context, n int) error {
	return s.process.Await(ctx, again, func(ctx context.Context) error {
		stored, err := s.Scrapes(ctx)
		if err == nil && stored < n {
			err = errNotYet
		}
		return err
	})
}

// Scrapes is how many scrapes are stored of the gateway that has fewest.
func (s *Prometheus) Scrapes(ctx context.Context) (int, error) {
	got, err := s.Query(ctx, `count_over_time(noncegate_connections_max[1h])`)
	if err != nil || len(got) < s.targets {
		return 0, err
	}
	fewest := slices.MinFunc(got, func(a, b Series) int { return cmp.Compare(a.Samples[0].Value, b.Samples[0].Value) })
	return int(fewest.Samples[0].Value), nil
}

// Rule is how a rule fares.
type Rule struct {
	Name      string
	Health    string // "ok" once it was evaluated without an error
	LastError string
	State     string // of an alert: inactive, pending or firing
}

// Rules are those of the server's file.
func (s *Prometheus) Rules(ctx context.Context) ([]Rule, error) {
	var answer struct {
		Data struct {
			Groups []struct{ Rules []Rule }
		}
	}
	body, err := s.get(ctx, "/api/v1/rules", nil)
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	var all []Rule
	for _, g := range answer.Data.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// get returns the body of an answer with status 200.
func (s *Prometheus) get(ctx context.Context, path string, values url.Values) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("prometheus: %s: %s", response.Status, tail(body))
	}
	return body, nil
}

// result is one series as Prometheus writes it.
type result struct {
	Metric map[string]string
	Value  *point
	Values []point
}

// point is a pair of seconds and a quoted number.
type point [2]json.RawMessage

func (s *Prometheus) query(ctx context.Context, path string, values url.Values) ([]Series, error) {
	body, err := s.get(ctx, path, values)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", values.Get("query"), err)
	}
	var answer struct {
		Data struct{ Result []result }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", values.Get("query"), err)
	}
	var all []Series
	for _, r := range answer.Data.Result {
		series, err := r.series()
		if err != nil {
			return nil, fmt.Errorf("answer to %s: %w", values.Get("query"), err)
		}
		all = append(all, series)
	}
	return all, nil
}

func (r result) series() (Series, error) {
	points := r.Values
	if r.Value != nil {
		points = []point{*r.Value}
	}
	series := Series{Labels: r.Metric}
	for _, p := range points {
		seconds, errAt := strconv.ParseFloat(string(p[0]), 64)
		var text string
		errText := json.Unmarshal(p[1], &text)
		value, errValue := strconv.ParseFloat(text, 64)
		if err := errors.Join(errAt, errText, errValue); err != nil {
			return Series{}, err
		}
		series.Samples = append(series.Samples, Sample{time.UnixMilli(int64(seconds * 1000)), value})
	}
	return series, nil
}
