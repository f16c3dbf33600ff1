package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/storetest"
)

func TestTheModelKeepsTheRules(t *testing.T) {
	open := func(t *testing.T) storetest.Database {
		var ahead atomic.Int64 // milliseconds
		began := time.UnixMilli(1_790_000_000_000)
		s := memstore.New(2, func() time.Time { return began.Add(time.Duration(ahead.Load()) * time.Millisecond) })
		return storetest.Database{
			Open:    func(*testing.T) nonce.Store { return s },
			Damage:  func(_ *testing.T, name string) { s.Damage(name) },
			Advance: func(d time.Duration) { ahead.Add(d.Milliseconds()) },
		}
	}
	storetest.Run(t, open)
	t.Run("logs", func(t *testing.T) { storetest.RunLogs(t, open) })
}
