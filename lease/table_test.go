package lease

import (
	"context"
	"errors"
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
	locked []int  // shards whose rows somebody has locked
	late   func() // runs after an acquire, before it is answered
	orders []string
	told   []string // what the server was told
	leaves bool     // a cannot serve the performance engine
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

var errLocked, errTaken = errors.New("a row is locked"), errors.New("taken since")

func (w *world) Acquire(_ context.Context, h Holder, shards []int) (rows []Shard, err error) {
	for _, i := range shards {
		if slices.Contains(w.locked, i) {
			return nil, errLocked
		}
	}
	for _, i := range shards {
		row := &w.rows[i]
		if row.Taken = row.Owner.Node != "b"; row.Taken {
			row.Owner, row.Token = h, row.Token+1
		}
		rows = append(rows, *row)
		row.Taken = false
	}
	if w.late != nil {
		w.late()
	}
	return rows, nil
}

func (w *world) Release(_ context.Context, h Holder, terms []ShardTerm) (given int, err error) {
	for _, of := range terms {
		if slices.Contains(w.locked, of.Shard) {
			return 0, errLocked
		}
	}
	for _, of := range terms {
		if row := &w.rows[of.Shard]; row.Owner == h && row.Token == of.Token {
			row.Owner, row.Token = Holder{}, row.Token+1
			given++
		}
	}
	return given, nil
}

func (w *world) Ask(_ int, ask func(context.Context) error) error { return ask(context.Background()) }

func (w *world) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *world) Halted() bool     { return false }
func (w *world) Losing(shard int) { w.tell("losing %d", shard) }
func (w *world) Lost(shard int)   { w.tell("lost %d", shard) }

func (w *world) Leave(shard int) bool {
	w.tell("leave %d", shard)
	return !w.leaves
}

func (w *world) Taken(shard int, row *Shard, anew bool) error {
	if row.Performance && w.leaves {
		return errLocked
	}
	w.tell("taken %d under %d, anew %t", shard, row.Token, anew)
	return nil
}

func (w *world) WentBack(shard int, seen, row *Shard) {
	w.tell("%d went back from %d to %d", shard, seen.Token, row.Token)
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
	orders := strings.Join(append(w.orders, w.told...), ", ")
	w.orders, w.told = nil, nil
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
		Bound:   func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
		Aborted: func(err error) bool { return err == errLocked || err == errTaken }, TakenSince: errTaken,
		Acquired: func(r AcquireResult) { w.tell("%s", r) },
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
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
			terms[0].token.Store(test.token)
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
		m.token.Store(m.Row().Token)
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
			if !m.Mine() {
				table.Follow([]Order{{Shard: m, Take: true}}, time.Now())
				w.did()
				continue
			}
			table.Follow([]Order{{Shard: m, To: "b"}}, time.Now())
			w.did()
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
	terms[1].token.Store(late.Token)
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

func TestWhatIsAcquiredIsKeptInStepWithTheRows(t *testing.T) {
	for name, test := range map[string]struct {
		row    Shard
		before func(*world, *Term)
		want   string
		err    error
		mine   bool
	}{
		"nobody's":              {row: row("", ""), mine: true, want: "taken 0 under 6, anew true, acquired"},
		"of a lease that ended": {row: row("c", ""), mine: true, want: "taken 0 under 6, anew true, takeover"},
		"another's":             {row: row("b", ""), want: "held"},
		"this node's, under the next token": {
			row: row("a", ""), mine: true, want: "taken 0 under 6, anew false, acquired",
			before: func(_ *world, m *Term) { m.token.Store(5) },
		},
		"this node's, but not all the time": {
			row: row("a", ""), mine: true, want: "lost 0, taken 0 under 6, anew false, acquired",
			before: func(_ *world, m *Term) { m.token.Store(4) },
		},
		"this node's, with the engine": {
			row: row("a", ""), mine: true, want: "losing 0, lost 0, taken 0 under 6, anew false, acquired",
			before: func(_ *world, m *Term) { m.token.Store(5); m.Performance = true },
		},
		"the store went back": {
			row: row("", ""), mine: true, want: "0 went back from 9 to 6, taken 0 under 6, anew true, acquired",
			before: func(_ *world, m *Term) { m.See(Shard{Token: 9}) },
		},
		"another took it since": {
			row: row("a", ""), want: "held, lost 0", err: errTaken,
			before: func(w *world, m *Term) {
				m.token.Store(5)
				w.late = func() { m.See(Shard{Token: 7, Owner: Holder{"b", 1}}) }
			},
		},
		"of an engine that is not there": {
			row: Shard{Token: 5, Engine: Engine{Performance: true}}, want: "lost 0", err: errLocked,
			before: func(w *world, _ *Term) { w.leaves = true },
		},
		"its row is locked": {
			row: row("", ""), want: "error", err: errLocked,
			before: func(w *world, _ *Term) { w.locked = []int{0} },
		},
	} {
		w := new(world)
		table, terms := w.table(t, test.row)
		m := terms[0]
		m.Doubt()
		if test.before != nil {
			test.before(w, m)
		}
		got := table.Acquire(terms)[0]
		if told := w.did(); told != test.want || got.Err != test.err || m.Mine() != test.mine {
			t.Errorf("%s: %q, error %v, mine %t; want %q", name, told, got.Err, m.Mine(), test.want)
		}
		if test.mine && (m.Token() != 6 || m.Row().Token != 6 || m.Took.Token != 6 || m.Unsure) {
			t.Errorf("%s: it knows %+v", name, m.Took)
		}
	}
}

func TestAShardWhoseRowIsLockedHoldsUpNoOther(t *testing.T) {
	w := &world{locked: []int{1}}
	table, terms := w.table(t, row("", ""), row("", ""), row("", ""))
	table.Acquire(terms)
	if !terms[0].Mine() || terms[1].Mine() || !terms[2].Mine() {
		t.Errorf("they were acquired so: %s", w.did())
	}
	w.locked = []int{0}
	table.GiveUpAll()
	for i, want := range []string{"a", "", ""} {
		if got := w.rows[i].Owner.Node; got != want || terms[i].Mine() {
			t.Errorf("shard %d is at %q, want %q", i, got, want)
		}
	}
	if got := terms[2].Row(); got.Token != 7 || got.Owner.Node != "" || terms[0].Row().Token != 6 {
		t.Errorf("what was given back is known as %+v", got)
	}
}

func TestAnOrderIsFollowedByWhatIsKnownThen(t *testing.T) {
	w := new(world)
	table, terms := w.table(t, row("", ""), row("", ""), row("b", ""))
	m, now := terms[0], time.Now()
	table.Acquire(terms[:1])
	w.did()
	if table.Follow([]Order{{Shard: m, Take: true}}, now); w.did() != "" {
		t.Error("what it has is taken again")
	}
	seen := terms[2].Row()
	back := Shard{Shard: 2, Token: 3}
	order := Order{Shard: terms[2], Seen: seen, Back: &back}
	terms[2].See(Shard{Shard: 2, Token: 6})
	if table.Follow([]Order{order}, now); w.did() != "" || terms[2].Row().Token != 6 {
		t.Error("a row that was read before a newer one is taken for a store that went back")
	}
	m.Performance, w.leaves = true, true
	if table.Follow([]Order{{Shard: m, To: "b"}}, now); w.did() != "leave 0" || !m.Mine() {
		t.Error("a shard is given up that the engine keeps")
	}
	m.Performance = false
	table.Retire()
	if table.Follow([]Order{{Shard: m, Take: true}, {Shard: terms[1], Take: true}}, now); w.did() != "lost 0" || m.Mine() || terms[1].Mine() {
		t.Error("a node that retired does not give up what it is to take")
	}
}
