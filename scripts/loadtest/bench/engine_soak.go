//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// The notes of a soak of the performance engine. The lag is the age of the oldest change that PostgreSQL
// does not have, as the gateway itself measures it; the memory is what Redis uses.
const (
	noteLagMost     = "lag, ms, at most"
	noteLagFirst    = "lag, ms, first third"
	noteLagLast     = "lag, ms, last third"
	noteMemoryMost  = "Redis MiB, at most"
	noteMemoryFirst = "Redis MiB, first third"
	noteMemoryLast  = "Redis MiB, last third"
	noteGrown       = "memory of Redis, last third ÷ first"
)

// soakLook is what one look found.
type soakLook struct{ lagMs, memoryMiB float64 }

// engineSoak loads a gateway that Redis serves for a long time, and watches how far
// PostgreSQL is behind and how much Redis has in memory.
func engineSoak(d time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		options, err := redis.ParseURL(srv.redis)
		if err != nil {
			return Sample{}, err
		}
		client := redis.NewClient(options)
		defer client.Close()
		l.Duration = d
		var looks []soakLook
		watched := beside(ctx, &l, func(ctx context.Context) (err error) {
			looks, err = srv.watch(ctx, client)
			return err
		})
		sample, err := load(ctx, srv, l, 0)
		if err = errors.Join(err, watched()); err != nil {
			return sample, err
		}
		sample.noteLooks(looks)
		return sample, nil
	}
}

// watch looks until ctx ends, which is no error.
func (s *server) watch(ctx context.Context, client *redis.Client) (looks []soakLook, err error) {
	for wait.For(ctx, soakPoll) == nil {
		is, err := observe.Read(ctx, s.admin+"/metrics")
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return looks, err
		}
		memory, err := usedMemory(ctx, client)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return looks, fmt.Errorf("memory of Redis: %w", err)
		}
		looks = append(looks, soakLook{lagMs: 1000 * is["noncegate_log_behind_seconds"], memoryMiB: memory / (1 << 20)})
	}
	return looks, nil
}

// usedMemory is what Redis says it has allocated, in bytes.
func usedMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "\nused_memory:")
	value, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseFloat(value, 64)
}

// noteLooks notes the medians of the first and of the last third, and the most of all.
func (s *Sample) noteLooks(looks []soakLook) {
	lag := func(l soakLook) float64 { return l.lagMs }
	memory := func(l soakLook) float64 { return l.memoryMiB }
	third := len(looks) / 3
	if third == 0 {
		s.Void = "too short: it was looked at less than three times"
		return
	}
	first, last := looks[:third], looks[len(looks)-third:]
	s.note(noteLagFirst, medianLook(first, lag))
	s.note(noteLagLast, medianLook(last, lag))
	s.note(noteLagMost, maxLook(looks, lag))
	s.note(noteMemoryFirst, medianLook(first, memory))
	s.note(noteMemoryLast, medianLook(last, memory))
	s.note(noteMemoryMost, maxLook(looks, memory))
	if s.Notes[noteMemoryFirst] > 0 {
		s.note(noteGrown, s.Notes[noteMemoryLast]/s.Notes[noteMemoryFirst])
	}
}

func medianLook(looks []soakLook, of func(soakLook) float64) float64 {
	values := make([]float64, len(looks))
	for i, l := range looks {
		values[i] = of(l)
	}
	return rounds.Median(values)
}

func maxLook(looks []soakLook, of func(soakLook) float64) (most float64) {
	for _, l := range looks {
		most = max(most, of(l))
	}
	return most
}
