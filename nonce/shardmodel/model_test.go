package shardmodel_test

import (
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/shardmodel"
	"noncegate/nonce/shardtest"
)

func TestTheModelKeepsTheRules(t *testing.T) {
	shardtest.Run(t, func(t *testing.T) shardtest.Database {
		var ahead atomic.Int64 // milliseconds
		began := time.UnixMilli(1_790_000_000_000)
		s := shardmodel.New(2, func() time.Time { return began.Add(time.Duration(ahead.Load()) * time.Millisecond) })
		return shardtest.Database{
			Open:     func(*testing.T) nonce.ShardStore { return s },
			Register: func(_ *testing.T, id string) lease.Holder { return s.Register(id) },
			Advance:  func(d time.Duration) { ahead.Add(d.Milliseconds()) },
		}
	})
}
