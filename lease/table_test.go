package lease

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// world is a store and a server of a table: node a, in a fleet with b, far, which is not reached, and c, whose
// lease is over.
type world struct {
	rows   []Shard
	orders []string
	leaves bool // a cannot serve the performance engine
}

func (w *world) Owners(context.Context) (Owners, error) {
	all := Owners{Now: time.Now(), Shards: slices.Clone(w.rows)}
	for _, name := range []string{"a", "b", "c", "far"} {
		n := Node{Holder: Holder{name, 1}, URL: "ws://" + name, Mode: "queue", Live: name != "c", LeaseUntil: time.Now().Add(time.Hour)}
		if name == "c" {
			n.LeaseUntil = time.Now().Add(-time.Second)
		}
		all.Nodes = append(all.Nodes, n)
	}
	return all, nil
}

func (w *world) Pin(context.Context, int, string) error { return nil }

func (w *world) Order(o Order) {
	switch {
	case o.Back != nil:
		w.orders = append(w.orders, fmt.Sprintf("%d went back from %d to %d", o.Shard.ID, o.Seen.Token, o.Back.Token))
	case o.Take:
		w.orders = append(w.orders, fmt.Sprintf("take %d", o.Shard.ID))
	default:
		w.orders = append(w.orders, fmt.Sprintf("give %d to %s", o.Shard.ID, o.To))
	}
}

func (w *world) Now() int64                          { return time.Now().UnixMilli() }
func (w *world) Reaches(node string) bool            { return node != "far" }
func (w *world) Leaves(row *Shard, _ time.Time) bool { return row.Performance && w.leaves }

// did are the orders since it was asked last.
func (w *world) did() string {
	orders := strings.Join(w.orders, ", ")
	w.orders = nil
	return orders
}

// table is that of node a, which has looked once.
func (w *world) table(t *testing.T, rows ...Shard) (*Table, []*Term) {
	t.Helper()
	for i := range rows {
		rows[i].Shard = i
	}
	w.rows = rows
	terms := make([]*Term, len(rows))
	for i := range terms {
		terms[i] = new(Term)
	}
	table := NewTable(Config{
		Store: w, Server: w, Holder: Holder{"a", 1}, Mode: "queue", Owns: true, Timeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, terms)
	if err := table.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	return table, terms
}

// row is of a shard that is at a node, "" for none, and should be at another.
func row(owner, should string) Shard {
	s := Shard{Token: 5, Pinned: should}
	if owner != "" {
		s.Owner = Holder{owner, 1}
	}
	return s
}

func TestARequestGoesToTheNodeThatHasTheShardOrShouldHaveIt(t *testing.T) {
	for name, test := range map[string]struct {
		row   Shard
		learn string // another node says that this one has it
		know  func(*Term)
		want  string
	}{
		"its owner":                           {row: row("b", "a"), want: "b"},
		"its owner, though it is not reached": {row: row("far", "a"), want: "far"},
		"its owner's lease is over":           {row: row("c", "b")},
		"nobody's, another should have it":    {row: row("", "b"), want: "b"},
		"nobody's, one not reached should":    {row: row("", "far")},
		"nobody's, this node should have it":  {row: row("", "a")},
		"by the store this node's":            {row: row("a", "b")},
		"told of another":                     {row: row("b", "b"), learn: "c", want: "c"},
		"told of another, in doubt since":     {row: row("b", "b"), learn: "c", know: (*Term).Doubt},
		"told of another, not believed since": {row: row("b", "b"), learn: "c", know: (*Term).Believe, want: "b"},
		"told of another under an old token": {row: row("b", "b"), learn: "c", want: "b", know: func(m *Term) {
			m.See(Shard{Token: 6, Owner: Holder{"b", 1}})
		}},
		"an older row changes nothing": {row: row("b", "b"), want: "b", know: func(m *Term) { m.See(Shard{Token: 4}) }},
	} {
		table, terms := new(world).table(t, test.row)
		if test.learn != "" {
			terms[0].Learn(test.learn, "ws://"+test.learn)
		}
		if test.know != nil {
			test.know(terms[0])
		}
		if got, url := table.Destination(terms[0]); got != test.want || got != "" && url != "ws://"+got {
			t.Errorf("%s: got %q at %s, want %q", name, got, url, test.want)
		}
	}
}

func TestALookOrdersEachShardToWhereItShouldBe(t *testing.T) {
	for name, test := range map[string]struct {
		row     Shard
		token   int64 // this node's; 0: none
		stopped bool
		want    string
	}{
		"nobody's, and should be here":           {row: row("", "a"), want: "take 0"},
		"nobody's, and should be there":          {row: row("", "b")},
		"the owner's lease is over":              {row: row("c", "a"), want: "take 0"},
		"another's":                              {row: row("b", "a")},
		"here, where it should be":               {row: row("a", "a"), token: 5},
		"here, and should be there":              {row: row("a", "b"), token: 5, want: "give 0 to b"},
		"here, and should be where none reaches": {row: row("a", "far"), token: 5},
		"here, with a signer that is stopped":    {row: row("a", "b"), token: 5, stopped: true},
		"taken from this node":                   {row: row("b", "b"), token: 4, want: "take 0"},
		"of an engine that is not reached":       {row: Shard{Token: 5, Pinned: "a", Engine: Engine{Performance: true}}},
	} {
		w := &world{leaves: true}
		table, terms := w.table(t, test.row)
		if test.token != 0 {
			terms[0].Begin(&Shard{Token: test.token})
		}
		if test.stopped {
			terms[0].Stopped.Add(1)
		}
		table.Balance()
		if got := w.did(); got != test.want {
			t.Errorf("%s: it orders %q, want %q", name, got, test.want)
		}
	}
}

func TestALookGivesUpTwoShardsAtMost(t *testing.T) {
	w := new(world)
	table, terms := w.table(t, row("a", "b"), row("a", "b"), row("a", "b"))
	for _, m := range terms {
		m.Begin(m.Row())
	}
	if table.Balance(); len(w.orders) != 2 {
		t.Errorf("it orders %v", w.orders)
	}
}

// TestAShardThatItsNodeDoesNotTakeIsTakenAfterASecondAndKeptForFive: then it is offered again.
func TestAShardThatItsNodeDoesNotTakeIsTakenAfterASecondAndKeptForFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(world)
		table, terms := w.table(t, row("", "b"))
		began, m := time.Now(), terms[0]
		for _, want := range []string{"take 0 after 1s", "give 0 to b after 6.1s", "take 0 after 8.1s"} {
			for table.Balance(); len(w.orders) == 0; table.Balance() {
				time.Sleep(100 * time.Millisecond)
			}
			if got := fmt.Sprint(w.did(), " after ", time.Since(began)); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
			if taken := (Shard{Token: m.Row().Token + 1, Owner: Holder{"a", 1}, Pinned: "b"}); !m.Mine() {
				m.See(taken)
				m.Begin(&taken)
				continue
			}
			m.End()
			m.Leave("b", time.Now())
			m.See(Shard{Token: m.Row().Token + 1})
			if got := table.YieldedTo(m); got != "b" {
				t.Errorf("it is left to %q", got)
			}
			time.Sleep(time.Second)
			if got := table.YieldedTo(m); got != "" {
				t.Errorf("a second later it is left to %q", got)
			}
		}
	})
}

func TestALookAndAHeartbeatTellOfAStoreThatWentBackAndOfALateAcquire(t *testing.T) {
	w := new(world)
	table, terms := w.table(t, row("b", "b"), row("", "b"))
	w.rows[0].Token = 4
	if err := table.Look(t.Context()); err != nil || w.did() != "0 went back from 5 to 4" {
		t.Errorf("a look orders something else, or fails with %v", err)
	}
	if terms[0].Row().Token != 5 {
		t.Error("the lower row is taken in without the lock of the shard")
	}
	late := Shard{Shard: 1, Token: 6, Owner: Holder{"a", 1}}
	if table.Renewed([]Shard{late}); w.did() != "take 1" {
		t.Error("an acquire that came late is not taken up")
	}
	terms[1].Begin(&late)
	if table.Renewed([]Shard{late}); w.did() != "" {
		t.Error("what is this node's is ordered again")
	}
	table.Retire()
	if table.Renewed([]Shard{{Shard: 1, Token: 7}}); w.did() != "give 1 to " {
		t.Error("a node that retired does not give back what comes late")
	}
	if slices.Contains(table.Fleet().Live, "a") {
		t.Error("a node that retired is in its own fleet")
	}
}
