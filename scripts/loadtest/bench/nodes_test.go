//go:build unix

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"noncegate/nonce/postgres"
	"strings"
	"testing"
	"time"
)

func TestLongManyNodesAreMeasuredAsOneAndEachSideDoesWhatItSays(t *testing.T) {
	c := short
	c.Rounds, c.Warmup, c.Duration, c.Idle = 1, 500*time.Millisecond, 500*time.Millisecond, 1500*time.Millisecond
	scenes := nodesScenes(c, nodesSizes{calls: 30, fewIdle: 20, manyIdle: 60})
	r, err := run(t.Context(), c, scenes, nodesRows(scenes))
	if err != nil {
		t.Fatal(err)
	}
	if why, void := r.IsVoid(); void || len(r.Rows) != 3 || r.Host.PostgreSQL == "" {
		t.Fatalf("void: %s; rows %+v", why, r.Rows)
	}
	for _, row := range r.Rows {
		if row.Median <= 0 {
			t.Errorf("row %+v, want a figure", row)
		}
	}
	notes := func(scene, side int) map[string]float64 { return r.Scenes[scene].Sides[side].Samples[0].Notes }

	if one, owners, anywhere := notes(0, 0)[noteForwarded], notes(0, 1)[noteForwarded], notes(0, 2)[noteForwarded]; one != 0 || owners > 50 || anywhere < 500 || anywhere > 800 {
		t.Errorf("of 1,000 requests %v, %v and %v were forwarded, want none with one node, hardly any at the owners, and two thirds anywhere", one, owners, anywhere)
	}
	for side, signers := range []float64{20, 60} {
		n := notes(1, side)
		if owned := n["shards owned"]; owned < postgres.DefaultShards/2 || owned > postgres.DefaultShards || n[noteTransactions] < 1 || n["heartbeats"] < 1 { // some shards may be on their way
			t.Errorf("with %v idle signers: %v", signers, n)
		}
	}
	for side, want := range []struct {
		first, later func(is func(string) float64) bool
	}{
		{ // basic
			func(is func(string) float64) bool { return is("commits") == 1000 && is("acquisitions") == 0 },
			func(is func(string) float64) bool { return is("commits") == 1000 && is("forwarded") == 0 },
		},
		{ // forwarding
			func(is func(string) float64) bool { return is("forwarded") > 0 },
			func(is func(string) float64) bool { return is("acquisitions") < fewMoves && is("not_owner") == 0 },
		},
		{ // following
			func(is func(string) float64) bool { return is("not_owner") > 0 },
			func(is func(string) float64) bool { return is("not_owner") < fewMoves && is("forwarded") == 0 },
		},
		{ // mixed
			func(is func(string) float64) bool { return is("forwarded") > 0 && is("calls") == callClients*30 },
			func(is func(string) float64) bool { return is("version conflicts") > 0 && is("fenced") == 0 },
		},
	} {
		n := notes(2, side)
		in := func(phase string) func(string) float64 {
			return func(name string) float64 { return n[noteOf(phase, name)] }
		}
		if !want.first(in(callPhases[0])) || !want.later(in(callPhases[1])) {
			t.Errorf("%s: %v", r.Scenes[2].Sides[side].Name, n)
		}
	}
}

// fewMoves bounds, for each 1,000 calls, what comes of shards that still move to their nodes.
const fewMoves = 100

// countsReport has two sides in each scene that has counts, one of them void.
func countsReport() *Report {
	side := func(notes map[string]float64, void string) []Side {
		return []Side{{Name: "some", Samples: []Sample{{Notes: notes, Void: void}}}, {Name: "other", Samples: []Sample{{Void: "no disk"}}}}
	}
	r := new(Report)
	r.Scenes = []Scene{
		{Name: nodesThroughput, Sides: []Side{{Name: "one node", Samples: []Sample{{PerSecond: 1234, Acknowledged: 1}}}}},
		{Name: nodesIdle, layout: (*Scene).idleTable, Sides: side(map[string]float64{noteTransactions: 5432, "leases renewed": 0}, "")},
		{Name: nodesCalls, layout: (*Scene).callsTable, Sides: side(map[string]float64{"at first, calls": 4321, "at first, acquisitions": 0.0123, "at first, fenced": 0}, "")},
	}
	return r
}

func TestTheTablesShowWhatIsRareAndTellNothingFromNotMeasured(t *testing.T) {
	var text, markdown, data bytes.Buffer
	r := countsReport()
	if err := errors.Join(r.WriteText(&text), r.WriteMarkdown(&markdown), r.WriteJSON(&data)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### throughput", "| one node | 1,234 |",
		"### idle", "| some | – | 5,432 | – | – | – | – | 0 |", "| other | void | void |",
		"### calls", "| some, at first | 4,321 | 0.012 | – | – | 0 |", "| some, after that | – |",
	} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("the Markdown has no %q:\n%s", want, markdown.String())
		}
	}
	for _, want := range []string{"5,432", "0.012"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, text.String())
		}
	}
	var again Report
	if err := json.Unmarshal(data.Bytes(), &again); err != nil || len(again.Scenes) != 3 {
		t.Errorf("the JSON has scenes %+v, %v", again.Scenes, err)
	}
}

func TestTheSharesOfALoadMakeUpTheWhole(t *testing.T) {
	for _, total := range []int{3, 64, 1000} {
		sum := 0
		for i := range nodesCount {
			n := share(total, i, nodesCount)
			if sum += n; n < total/nodesCount || n > total/nodesCount+1 {
				t.Errorf("share %d of %d is %d", i, total, n)
			}
		}
		if sum != total {
			t.Errorf("the shares of %d make up %d", total, sum)
		}
	}
}
