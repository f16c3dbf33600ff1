package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/redisdb"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/redislog"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/test/lab/redistest"
)

// BenchmarkEngines compares the engines below the WebSocket: 1024 ops in flight, 1,000 signers,
// pairs and hand-outs alone.
func BenchmarkEngines(b *testing.B) {
	redis, err := redistest.Start("appendonly no")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = redis.Close() })
	for _, pairs := range []bool{true, false} {
		for _, performance := range []bool{false, true} {
			b.Run(fmt.Sprintf("pairs=%v/performance=%v", pairs, performance), func(b *testing.B) { benchEngine(b, redis, pairs, performance) })
		}
	}
}

func benchEngine(b *testing.B, redis *redistest.Server, pairs, performance bool) {
	ctx := context.Background()
	if err := redis.Restart(); err != nil { // empty
		b.Fatal(err)
	}
	store := openShards(b, server.NewDatabase(b), 32)
	db, err := redisdb.Open(ctx, redis.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	log, err := redislog.Open(ctx, db, "bench")
	if err != nil {
		b.Fatal(err)
	}
	h, err := store.Register(ctx, lease.Presence{Node: "a", Mode: string(nonce.WorkerQueue)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := service.New(ctx, store, h, service.Config{
		Mode: nonce.WorkerQueue, Workers: 2, QueueCapacity: 4096, Reject: nonce.FailFast, LeaseTTL: 5 * time.Second, WatchEvery: 100 * time.Millisecond,
		Rules: rules.Rules{DefaultHold: time.Minute, MaxLive: 256}, MaxHold: time.Minute, SweepInterval: time.Second,
		Log: &service.LogConfig{Log: log, Store: store},
	}, noncetest.Unmeasured{}, nil, func(error) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Stop(context.Background()) })
	if performance {
		if _, err := s.Switch(ctx, true, 0, "bench"); err != nil {
			b.Fatal(err)
		}
		for s.Engine().State != service.StatePerformance {
			time.Sleep(10 * time.Millisecond)
		}
	}
	var next, failed atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range 1024 {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				signer := fmt.Sprint("signer-", n%1000)
				op := &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1}
				if s.Do(ctx, op) != nil || op.Err != nil {
					failed.Add(1)
					continue
				}
				if pairs {
					next.Add(1)
					mark := &nonce.Op{Kind: nonce.KindMarkUsed, Signer: signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0]}
					if s.Do(ctx, mark) != nil || mark.Err != nil {
						failed.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(float64(failed.Load()), "failed")
}
