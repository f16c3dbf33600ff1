//go:build unix

package bench

import (
	"strings"
	"testing"
	"time"
)

func TestLongALoadIsMeasuredUntilAllHoldsThatSomebodyElseLeftHaveEnded(t *testing.T) {
	c := short
	c.Rounds, c.Duration = 1, 5*time.Second
	left := abandoned{signers: 20, each: 5, lasting: 1500 * time.Millisecond}
	l := open(8, 200)
	scenes := []Scene{{Name: "expiry", Sides: []Side{
		{Name: nothingLeft, server: gatewayPostgres, load: l, drive: ending(abandoned{lasting: 300 * time.Millisecond})},
		{Name: holdsLeft, server: gatewayPostgres, load: l, drive: ending(left)},
		{Name: "too short", server: gatewayPostgres, load: l, drive: ending(abandoned{signers: 20, each: 5, lasting: 100 * time.Millisecond})},
	}}}
	r, err := run(t.Context(), c, scenes, []Row{{Name: "expiry", Scene: "expiry", Over: holdsLeft, Under: nothingLeft, figure: p99, Target: atMost(1000)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Rows[0]; got.Verdict != Met {
		t.Errorf("row %+v, want it met", got)
	}
	sides := r.Scenes[0].Sides
	for i, want := range []struct{ ended, least, most float64 }{{0, 4.9, 5.5}, {100, 0.2, 4.5}} {
		s := sides[i].Samples[0]
		took := float64(s.Acknowledged) / s.PerSecond
		if s.Void != "" || s.Notes[noteEnded] != want.ended || took < want.least || took > want.most {
			t.Errorf("%s: measured for %.2f s, %+v; want %v to %v s and %v holds ended", sides[i].Name, took, s, want.least, want.most, want.ended)
		}
		if ending := s.Notes[noteEnding]; want.ended > 0 && (ending <= 0 || ending > took) {
			t.Errorf("%s: the ending took %v s of %.2f", sides[i].Name, ending, took)
		}
	}
	if why := sides[2].void(); !strings.Contains(why, "holds behind") {
		t.Errorf("holds that end before the load is measured: %q", why)
	}
}

func TestALoadIsVoidUnlessItWasMeasuredFromTheFirstToTheLastHold(t *testing.T) {
	begin := time.Now()
	looks := func(ended ...float64) (all []endingLook) {
		for i, n := range ended {
			all = append(all, endingLook{begin.Add(time.Duration(i) * time.Second), n})
		}
		return all
	}
	for name, test := range map[string]struct {
		looks []endingLook
		want  float64
		void  string
		took  float64
	}{
		"all of it":        {looks(0, 0, 1, 30, 100), 100, "", 3},
		"all at once":      {looks(0, 100), 100, "", 1},
		"nothing was left": {looks(0, 0, 0), 0, "", 0},
		"not the begin":    {looks(1, 30, 100), 100, "1 holds were ended before", 0},
		"not the end":      {looks(0, 1, 99), 100, "99 holds were ended while the load was measured, and not 100", 0},
		"some of its own":  {looks(0, 1, 101), 100, "101 holds were ended while the load was measured, and not 100", 0},
		"some of nobody":   {looks(0, 0, 1), 0, "1 holds were ended while the load was measured, and not 0", 0},
		"no look":          {nil, 100, "nobody looked", 0},
	} {
		var s Sample
		if s.noteEnding(test.looks, test.want); !strings.Contains(s.Void, test.void) || test.void == "" && s.Void != "" {
			t.Errorf("%s: void because of %q, want %q", name, s.Void, test.void)
		}
		if got := s.Notes[noteEnding]; got != test.took {
			t.Errorf("%s: it took %v s, want %v", name, got, test.took)
		}
	}
	s := Sample{Void: "7 refused: server_busy"}
	if s.noteEnding(looks(0, 1), 100); s.Void != "7 refused: server_busy" {
		t.Errorf("a load that was void is void because of %q", s.Void)
	}
}
