package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/result"
)

// element is one element of a page: its name, its attributes, and the text
// right inside it.
type element struct {
	name, text string
	attributes []xml.Attr
}

// elements reads a page strictly, so that it must be well-formed.
func elements(t *testing.T, page []byte) []element {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(page))
	var all []element
	var open []int
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			all = append(all, element{name: token.Name.Local, attributes: token.Copy().Attr})
			open = append(open, len(all)-1)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
}

func pageOf(t *testing.T, run *result.Run) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, run); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func comparisonOf(t *testing.T, title string, runs ...*result.Run) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Comparison(&out, title, Summary{}, runs); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// standsAlone fails the test where the page could ask anything of the network or
// run anything.
func standsAlone(t *testing.T, page []byte) {
	t.Helper()
	known := regexp.MustCompile(`^(html|head|meta|title|style|body|h[1-6]|p|b|ul|li|small|div|table|tr|th|td|figure|figcaption|details|summary|svg|path|text)$`)
	elsewhere := regexp.MustCompile(`(?i)//|url\(|@import|javascript:|data:`)
	for _, e := range elements(t, page) {
		if !known.MatchString(e.name) {
			t.Errorf("the page has an element <%s>", e.name)
		}
		if e.name == "style" && elsewhere.MatchString(e.text) {
			t.Error("the style sheet refers to something elsewhere")
		}
		for _, a := range e.attributes {
			namespace := a.Name.Local == "xmlns" || a.Name.Space == "xmlns"
			if strings.HasPrefix(a.Name.Local, "on") || (!namespace && elsewhere.MatchString(a.Value)) {
				t.Errorf("<%s> has %s=%q", e.name, a.Name.Local, a.Value)
			}
		}
	}
}

func TestThePageStandsAlone(t *testing.T) {
	run := judged()
	standsAlone(t, pageOf(t, run))
	standsAlone(t, comparisonOf(t, "two", run, run))
	standsAlone(t, pageOf(t, new(result.Run)))
}

func TestWhatComesFromOutsideIsShownAndNotObeyed(t *testing.T) {
	attacks := []string{
		`<script src="https://evil.example/x.js"></script>`,
		`"><img src=x onerror=alert(1)>`, `'--><svg onload=alert(1)>`, `]]></style></svg><a href="javascript:x">`, `{{.Title}}`,
	}
	for _, s := range attacks {
		showsHarmlessly(t, pageOf(t, hostile(s)), s)
	}
	all := strings.Join(attacks, " ")
	showsHarmlessly(t, comparisonOf(t, all, hostile(all)), all)
}

func showsHarmlessly(t *testing.T, page []byte, s string) {
	t.Helper()
	standsAlone(t, page)
	shown := 0
	for _, e := range elements(t, page) {
		if strings.Contains(e.text, s) {
			shown++
		}
	}
	if shown < 10 {
		t.Errorf("%q is shown %d times, want wherever it stands", s, shown)
	}
}

func TestThePageShowsEveryPartOfTheRun(t *testing.T) {
	page := string(pageOf(t, judged()))
	for _, part := range []string{
		"FAIL: connections lost, growth of postDbQueueMs", "✓ pass", "✗ FAIL", "599,321", "server_busy 412", "unexpected EOF",
		"Latency by percentile", "Throughput", "Latency over time", "Resident memory", "workerQueueMs, p95", "commitMs, p95",
		"encodeQueueMs, p95", "writeQueueMs, p95", "postDbQueueMs, p95", "noncegate_rejected_total{stage=&#34;worker&#34;}", "process_cpu_seconds_total",
		"0 violations", "open loop, 10,000 requests/s", "nonce_allocate 60 %", "prefers-color-scheme: dark", `name="viewport"`,
		"http://10.0.0.2:8081/metrics",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("%q is not on the page", part)
		}
	}
	if got, want := strings.Count(page, "<figure>"), 9; got != want {
		t.Errorf("%d plots, want %d", got, want)
	}
	if !strings.Contains(page, `class="grid`) {
		t.Error("the plots have no grid")
	}
	// Every line and label takes its colour from the style sheet, else it could
	// not be read in both light and dark.
	if strings.Contains(page, "style=") {
		t.Error("something on the page has a style of its own")
	}
}

func TestACriterionThatCouldNotBeJudgedIsNotShownAsPassed(t *testing.T) {
	run := good()
	run.Nodes = []result.Node{{Stages: []result.Stage{{Name: "commitMs", Growth: result.Growth{Unknown: true, Why: "too short"}}}}}
	Judge(run, strict)
	if page := string(pageOf(t, run)); !strings.Contains(page, "? unknown") || !strings.Contains(textOf(t, run), "\nunknown growth of commitMs") {
		t.Error("the unknown growth is not shown as unknown")
	}
}

func TestAComparisonHasTheRunsSideBySideAsMultiplesOfTheFirst(t *testing.T) {
	baseline, slow := judged(), judged()
	slow.Name, slow.LatencyMs.P99, slow.PerSecond = "with slow clients", 25.8, 0
	slow.Slow = &result.Slow{Clients: 200, Behaviour: "stop", Kicked: 180}
	rows := map[string]string{}
	var row []string
	for _, e := range elements(t, comparisonOf(t, "Slow clients", baseline, slow)) {
		switch e.name {
		case "tr":
			row = nil
		case "td", "th":
			row = append(row, e.text)
			if len(row) == 3 && rows[row[0]] == "" {
				rows[row[0]] = row[1] + " | " + row[2]
			}
		}
	}
	for name, want := range map[string]string{
		"":                    "baseline | with slow clients",
		"latency p99, ms":     "12.9 | 25.8 (×2.00)",
		"acknowledged/s":      "9,985 | 0 (×0.00)",
		"slow clients kicked": "0 | 180",
		"outcome":             "FAIL | FAIL",
	} {
		if rows[name] != want {
			t.Errorf("row %q is %q, want %q", name, rows[name], want)
		}
	}
}

func TestADayOfSecondsMakesAPageThatABrowserCanShow(t *testing.T) {
	run := judged()
	second := run.Timeline[0]
	run.Timeline = nil
	for i := range 86_400 {
		second.At = float64(i)
		run.Timeline = append(run.Timeline, second)
	}
	page := pageOf(t, run)
	if len(page) > 200_000 {
		t.Errorf("the page has %d bytes, want at most 200,000", len(page))
	}
	if !bytes.Contains(page, []byte("Each point is the largest of 216.")) {
		t.Error("the page does not say that its points stand for several seconds")
	}
}
