package guard

import (
	"context"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

// run does one step with the locks.
func run(t *testing.T, locks Locks, s Step) Step {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	steps := []Step{s}
	locks.Run(ctx, steps)
	if steps[0].Err != nil {
		t.Fatalf("%+v", steps[0])
	}
	return steps[0]
}

func TestRedisAndMemoryDoTheSame(t *testing.T) {
	for name, locks := range map[string]Locks{"redis": NewRedis(client(t, server), "test"), "memory": NewMemory(10)} {
		t.Run(name, func(t *testing.T) {
			take := Step{Key: "k", Value: "v1", TTL: time.Minute}
			for range map[string]int{"redis": 2, "memory": 1}[name] { // a client that asks Redis again, because the answer was lost, has its lock
				if s := run(t, locks, take); !s.OK {
					t.Errorf("the first take: %+v", s)
				}
			}
			if name == "redis" {
				if ttl := client(t, server).PTTL(t.Context(), redisPrefix+"test:k").Val(); ttl <= 0 || ttl > take.TTL {
					t.Errorf("it lasts %v, want %v at most", ttl, take.TTL)
				}
			}
			other := take
			other.Value, other.TTL = "v2", time.Hour
			if s := run(t, locks, other); s.OK || s.Left <= 50*time.Second || s.Left > time.Minute {
				t.Errorf("the second take: %+v, want what is left of the first's minute", s)
			}
			if s := run(t, locks, Step{Key: "k", Value: "v2", Release: true}); s.OK || !s.Others {
				t.Errorf("a release by the other: %+v", s)
			}
			if s := run(t, locks, Step{Key: "k", Value: "v1", Release: true}); !s.OK {
				t.Errorf("the release: %+v", s)
			}
			if s := run(t, locks, Step{Key: "k", Value: "v1", Release: true}); s.OK || s.Others {
				t.Errorf("the release of nothing: %+v", s)
			}
			steps := []Step{
				{Key: "a", Value: "1", TTL: time.Minute}, {Key: "b", Value: "2", TTL: time.Minute}, {Key: "a", Value: "3", TTL: time.Minute},
				{Key: "a", Value: "1", Release: true}, {Key: "a", Value: "4", TTL: time.Minute},
				{Key: "a", Value: "4", Release: true}, {Key: "b", Value: "2", Release: true},
			}
			locks.Run(t.Context(), steps)
			for i, want := range []bool{true, true, false, true, true, true, true} {
				if s := steps[i]; s.OK != want || s.Err != nil {
					t.Errorf("step %d: %+v, want %v", i, s, want)
				}
			}
		})
	}
}

func TestARedisThatHangsOrIsAwayLetsNobodyThroughAndServesAgain(t *testing.T) {
	r := start(t, NewRedis(client(t, server), "test"), func(c *Config) { c.Timeout = time.Second })
	held := r.take("held", time.Minute, Granted)
	expect.Must(t, server.Pause())
	r.take("k", time.Second, Unanswered)
	r.end(held) // fails, and its call is answered nevertheless
	expect.Must(t, server.Resume())
	// The take may have reached Redis; then it is given back, or ends by itself.
	r.again("k")
	expect.Must(t, server.Kill())
	r.take("k", time.Second, Unanswered)
	expect.Must(t, server.Restart())
	r.again("k")
}

// again takes and releases a lock that may still be there for its interval.
func (r *rig) again(key string) {
	r.Helper()
	for began := time.Now(); ; {
		c := r.ask(key, time.Second, false)
		if <-c.decided; c.lock.Verdict == Granted {
			r.end(c)
			return
		}
		if time.Since(began) > patience {
			r.Fatalf("never again: %+v", c.lock)
		}
	}
}
