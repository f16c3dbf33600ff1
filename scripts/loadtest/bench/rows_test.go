//go:build unix

package bench

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// usual is a configuration that passes.
var usual = Config{Rounds: 5, Warmup: time.Second, Duration: 4 * time.Second, Idle: 15 * time.Second, Soak: 5 * time.Minute}

func TestEveryRowIsAboutSidesThatAreMeasured(t *testing.T) {
	all := scenes(usual)
	for _, r := range rows {
		i := slices.IndexFunc(all, func(s Scene) bool { return s.Name == r.Scene })
		if i < 0 {
			t.Errorf("%s: there is no scene %q", r.Name, r.Scene)
			continue
		}
		for _, name := range []string{r.Over, r.Under} {
			if name != "" && !slices.ContainsFunc(all[i].Sides, func(s Side) bool { return s.Name == name }) {
				t.Errorf("%s: scene %s has no side %q", r.Name, r.Scene, name)
			}
		}
	}
	for _, s := range append(all, scaleScenes()...) {
		for _, side := range s.Sides {
			l := side.loadFor(usual, s.times(), "ws://127.0.0.1:1/ws")
			if err := l.Validate(); err != nil {
				t.Errorf("%s, %s: %v", s.Name, side.Name, err)
			}
		}
	}
}

func TestTheDesignsTargetsAreInTheTable(t *testing.T) {
	want := map[string]Target{
		"echo": {AtLeast: 0.8}, "echo-allocate": {AtLeast: 0.8}, "echo-1000": {AtLeast: 0.7}, "echo-5000": {AtLeast: 0.7},
		"naive": {AtLeast: 20}, "naive-hot": {AtLeast: 100}, "hot": {AtLeast: 1}, "million": {AtLeast: 0.5},
		"open": {AtMost: 3}, "idle": {AtMost: 8 << 10}, "slow": {AtMost: 1.2}, "echo-sqlite": {AtLeast: 0.45},
		"soak":        {AtLeast: 1},
		"engine-peak": {AtLeast: 1.2}, "engine-allocate": {AtLeast: 1.2}, "engine-incr": {AtLeast: 2.5}, "engine-incr-allocate": {AtLeast: 2.5},
		"engine-far-peak": {AtLeast: 2}, "engine-far-allocate": {AtLeast: 2}, "engine-far-p50": {AtMost: 0.15}, "engine-far-p99": {AtMost: 0.3},
		"keys": {AtLeast: 0.97}, "chain": {AtLeast: 0.95},
		"expiry": {AtMost: 1.5}, "greed": {AtMost: 1},
		"engine-lag": {AtMost: 1000}, "engine-memory": {AtMost: 1.1},
		"engine-outage": {AtLeast: 1}, "engine-silence": {AtLeast: 1},
	}
	got := make(map[string]Target)
	for _, r := range rows {
		if r.Target != nil {
			got[r.Name] = *r.Target
		}
	}
	for name, target := range want {
		if got[name] != target {
			t.Errorf("target of %s is %+v, want %+v", name, got[name], target)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d rows have a target, want %d", len(got), len(want))
	}
}

// chosenNames are the names of the rows that one gets.
func chosenNames(t *testing.T, only ...string) (names []string) {
	t.Helper()
	chosen, err := chooseRows(only)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range chosen {
		names = append(names, r.Name)
	}
	return names
}

func TestRowsThatTakeLongAreMeasuredOnlyWhenAskedFor(t *testing.T) {
	if got := chosenNames(t); slices.Contains(got, "million") || !slices.Contains(got, "echo") {
		t.Errorf("without a choice: %v", got)
	}
	if got := chosenNames(t, "all"); len(got) != len(rows) {
		t.Errorf("all: %v, want %d rows", got, len(rows))
	}
	if got := chosenNames(t, "open", "million", "echo"); !slices.Equal(got, []string{"echo", "million", "open"}) {
		t.Errorf("three by name: %v, want those in the table's order", got)
	}
}

func TestOnlyWhatARowNeedsIsMeasured(t *testing.T) {
	for names, want := range map[string][]string{
		"naive echo": {echo, gatewayPostgres, naive}, // the gateway once for both
		"soak-wal":   {"lasting peak", halfOfPeak},   // the half after its peak
	} {
		chosen, err := chooseRows(strings.Fields(names))
		if err != nil {
			t.Fatal(err)
		}
		needed := scenesOf(chosen, scenes(usual))
		if len(needed) != 1 {
			t.Fatalf("%s: scenes are %+v, want one", names, needed)
		}
		var got []string
		for _, s := range needed[0].Sides {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: sides are %v, want %v", names, got, want)
		}
	}
}

func TestWrongSettingsNameTheFlag(t *testing.T) {
	change := func(f func(*Config)) Config {
		c := usual
		f(&c)
		return c
	}
	for flag, c := range map[string]Config{
		"--rounds":   change(func(c *Config) { c.Rounds = 0 }),
		"--warmup":   change(func(c *Config) { c.Warmup = -1 }),
		"--idle":     change(func(c *Config) { c.Idle = time.Hour }),
		"--soak":     change(func(c *Config) { c.Soak = 2 * time.Hour }),
		"--duration": change(func(c *Config) { c.Duration = 0 }),
		"no hold":    change(func(c *Config) { c.Duration = 10 * time.Second }), // the slow row takes five times that
	} {
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: %v, want an error about %s", c, err, flag)
		}
	}
}

func TestTheTimeOfABenchIsBounded(t *testing.T) {
	chosen, err := chooseRows(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := usual.limit(scenesOf(chosen, scenes(usual))); got < 30*time.Minute || got > 5*time.Hour {
		t.Errorf("the usual bench may take %v", got)
	}
}
