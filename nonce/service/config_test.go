package service_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/service"
)

func TestAServiceRefusesSettingsThatContradictEachOther(t *testing.T) {
	for sentence, change := range map[string]func(*service.Config){
		"mode":               func(c *service.Config) { c.Mode = "fast" },
		"reject policy":      func(c *service.Config) { c.Reject = "" },
		"workers":            func(c *service.Config) { c.Workers = 0 },
		"capacity":           func(c *service.Config) { c.QueueCapacity = 0 },
		"lease ttl":          func(c *service.Config) { c.LeaseTTL = time.Second - 1 },
		"the default hold":   func(c *service.Config) { c.Rules.DefaultHold = c.MaxHold + 1 },
		"above 0":            func(c *service.Config) { c.Rules.DefaultHold = 0 },
		"the sweep interval": func(c *service.Config) { c.SweepInterval = 0 },
		"new signers":        func(c *service.Config) { c.Rules.NewSigners = "maybe" },
		"a retention":        func(c *service.Config) { c.HistoryRetention = -1 },
		"the signers that":   func(c *service.Config) { c.MaxSignerBytes = -1 },
		"the open holds":     func(c *service.Config) { c.Rules.MaxLive = nonce.MaxLive + 1 },
	} {
		cfg := settings()
		change(&cfg)
		_, err := service.New(t.Context(), newDisk(), lease.Holder{Node: "a"}, cfg, &figures{}, nil, nil, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%s: got %v", sentence, err)
		}
	}
}

func TestEventsOfASignerComeOnItsQueue(t *testing.T) {
	n := start(t, newDisk(), "a", workers(3))
	n.want("allocate count=2 -> 0#1 1#1", "used 0#1 hash=7 -> CONSUMED", "release 1#1 -> RELEASED", "floor 1 -> floor 1 next 2",
		"used 0#1 hash=7 -> CONSUMED", "release 1#9 -> conflict 1#1=RELEASED", "floor 0 -> floor 1 next 2")
	if got, want := n.events.String(), "allocated 0#1, allocated 1#1, used 0#1, released 1#1, floor 1#0"; got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
	for i, worker := range n.events.worker {
		if worker != n.WorkerIndex(signer) || worker >= n.WorkerCount() {
			t.Errorf("event %d: got worker %d of %d, want %d", i, worker, n.WorkerCount(), n.WorkerIndex(signer))
		}
	}
	for i, want := range []int64{1, 1, 2, 3, 4} {
		if got := n.events.all[i].Version; got != want {
			t.Errorf("event %d: got version %d, want %d", i, got, want)
		}
	}
}
