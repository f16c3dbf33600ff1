package lease

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var lookEverySecond = WatchConfig{Interval: time.Second, Timeout: 500 * time.Millisecond}

// nodesNamed is a look that finds these nodes.
func nodesNamed(ids ...string) func() ([]Node, error) {
	return func() ([]Node, error) {
		list := make([]Node, len(ids))
		for i, id := range ids {
			list[i].Node = id
		}
		return list, nil
	}
}

// watched are the lists that a watch gave, as words. They are read when it has
// stopped.
type watched struct{ lists []string }

func (w *watched) each(list []Node) {
	var ids []string
	for _, n := range list {
		ids = append(ids, n.Node)
	}
	w.lists = append(w.lists, strings.Join(ids, " "))
}

func TestAWatchGivesTheFirstListBeforeItReturnsAndThenOneEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got watched
		first := make(chan int, 3)
		r := &registry{nodes: []func() ([]Node, error){nodesNamed("a"), nodesNamed("a", "b"), nodesNamed("b")}}
		w, err := StartWatch(t.Context(), r, lookEverySecond, slog.New(slog.DiscardHandler), func(list []Node) {
			first <- len(list)
			got.each(list)
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(first) != 1 || <-first != 1 {
			t.Error("no list when it started")
		}
		time.Sleep(2*time.Second + time.Millisecond)
		w.Stop()
		w.Stop()
		time.Sleep(time.Minute)
		if text := strings.Join(got.lists, ", "); text != "a, a b, b" {
			t.Errorf("got lists %s", text)
		}
	})
}

func TestAWatchKeepsTheLastListThroughAnOutageAndSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got watched
		var log bytes.Buffer
		away := func() ([]Node, error) { return nil, errors.New("away") }
		hangs := func() ([]Node, error) { return nil, nil }
		r := &registry{nodes: []func() ([]Node, error){nodesNamed("a"), away, hangs, away, nodesNamed("b"), away, nodesNamed("c")}}
		w, err := StartWatch(t.Context(), r, lookEverySecond, slog.New(slog.NewTextHandler(&log, nil)), got.each)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6*time.Second + time.Millisecond)
		w.Stop()
		if text := strings.Join(got.lists, ", "); text != "a, b, c" || r.looks != 7 {
			t.Errorf("got lists %s from %d looks", text, r.looks)
		}
		for said, want := range map[string]int{"cannot be read": 2, "can be read again": 2} {
			if n := strings.Count(log.String(), said); n != want {
				t.Errorf("the log says %q %d times, want %d:\n%s", said, n, want, log.String())
			}
		}
	})
}

func TestTheEndOfAWatchDuringALookIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got watched
		var log bytes.Buffer
		r := &registry{nodes: []func() ([]Node, error){nodesNamed("a"), func() ([]Node, error) { return nil, nil }}}
		w, err := StartWatch(t.Context(), r, lookEverySecond, slog.New(slog.NewTextHandler(&log, nil)), got.each)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second + time.Millisecond) // into the look that hangs
		w.Stop()
		if len(got.lists) != 1 || log.Len() != 0 {
			t.Errorf("got %v, log %s", got.lists, log.String())
		}
	})
}

func TestAWatchDoesNotStartBlindNorWithSettingsThatContradictEachOther(t *testing.T) {
	var got watched
	blind := &registry{nodes: []func() ([]Node, error){func() ([]Node, error) { return nil, errors.New("away") }}}
	if _, err := StartWatch(t.Context(), blind, lookEverySecond, slog.New(slog.DiscardHandler), got.each); err == nil {
		t.Error("it started without a list")
	}
	if _, err := StartWatch(t.Context(), &registry{}, WatchConfig{Interval: time.Second, Timeout: time.Second}, slog.New(slog.DiscardHandler), got.each); err == nil {
		t.Error("a timeout as long as the interval was taken")
	}
	if len(got.lists) != 0 {
		t.Errorf("got %v", got.lists)
	}
}
