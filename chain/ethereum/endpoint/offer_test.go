package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
)

// readOnly is a store that can be read and takes no change, with as many transactions that are due as one look takes.
type readOnly struct {
	nonce.SentStore
	looks int
	stop  func()
}

func (r *readOnly) SentTotals(context.Context) (rows, bytes int64, err error) { return 0, 0, nil }
func (r *readOnly) DelaySent(context.Context, []nonce.Sent, time.Duration) error {
	return errors.New("no room on the disk")
}
func (r *readOnly) DueSent(context.Context, []int, int) ([]nonce.Sent, error) {
	if r.looks++; r.looks == 1000 {
		r.stop()
	}
	return make([]nonce.Sent, offerBatch), nil
}

type noShards struct{ Owner }

func (noShards) OwnedShards() []int { return nil }

func TestAStoreThatTakesNoChangeIsNotAskedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*offerEvery+time.Second)
		defer cancel()
		store := &readOnly{stop: cancel}
		NewOfferer(noShards{}, store, slog.New(slog.DiscardHandler)).Run(ctx)
		if store.looks < 10 || store.looks > 20 {
			t.Errorf("%d looks in ten rounds", store.looks)
		}
	})
}
