package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func TestWithNonceGivesBackOnlyWhatIsKnownNotToBeSent(t *testing.T) {
	boom := errors.New("boom")
	unsent := fmt.Errorf("%w: %w", nonce.ErrNotSent, boom)
	for name, mode := range modes {
		for _, test := range []struct {
			name        string
			recordFirst bool
			sign        bool
			hash        byte
			err         error
			want        string
		}{
			{"used", false, false, 7, nil, "0#1=CONSUMED/7"},
			{"used, and nobody knows the hash", false, false, 0, nil, "0#1=CONSUMED"},
			{"the hash that was recorded", true, true, 0, nil, "0#1=CONSUMED/5"},
			{"another hash than was recorded", true, true, 7, nil, "0#1=CONSUMED/7,5"},
			{"an error without a promise", false, false, 0, boom, "0#1=HELD"},
			{"an error after the hash", false, true, 0, boom, "0#1=HELD/5"},
			{"an error before the hash, with the promise", true, false, 0, boom, "0#1=RELEASED/handler_error"},
			{"an error after the hash, with the promise", true, true, 0, boom, "0#1=HELD/5/record_first"},
			{"not sent", false, false, 0, unsent, "0#1=RELEASED/handler_error"},
			{"not sent although the hash was recorded", true, true, 0, unsent, "0#1=RELEASED/handler_error"},
		} {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				n := start(t, newDisk(), "a", mode)
				err := n.WithNonce(t.Context(), signer, service.NonceOptions{RecordFirst: test.recordFirst}, func(ctx context.Context, h *service.Hold) (nonce.TxHash, error) {
					if until, ok := ctx.Deadline(); !ok || !until.Equal(h.Deadline) {
						t.Errorf("got deadline %v, want %v", until, h.Deadline)
					}
					if test.sign {
						if err := h.Signed(ctx, nonce.TxHash{31: 5}); err != nil {
							t.Error(err)
						}
					}
					return nonce.TxHash{31: test.hash}, test.err
				})
				if !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
				if got := n.disk.rows(t, signer); got != test.want {
					t.Errorf("got rows %s, want %s", got, test.want)
				}
			})
		}
	}
}

func TestWithNonceLeavesTheHoldAfterAPanicAndWhenTheContextEnds(t *testing.T) {
	for name, mode := range modes {
		for _, recordFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, recordFirst), func(t *testing.T) {
				n := start(t, newDisk(), "a", mode)
				o := service.NonceOptions{RecordFirst: recordFirst}
				func() {
					defer func() {
						if recover() != "boom" {
							t.Error("the panic did not come through")
						}
					}()
					_ = n.WithNonce(t.Context(), signer, o, func(context.Context, *service.Hold) (nonce.TxHash, error) { panic("boom") })
				}()
				ctx, cancel := context.WithCancel(t.Context())
				err := n.WithNonce(ctx, signer, o, func(ctx context.Context, h *service.Hold) (nonce.TxHash, error) {
					if err := h.Signed(ctx, nonce.TxHash{31: 5}); err != nil {
						t.Error(err)
					}
					cancel()
					return nonce.TxHash{}, ctx.Err()
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				reason := ""
				if recordFirst {
					reason = "/record_first"
				}
				if got, want := n.disk.rows(t, signer), "0#1=HELD"+reason+" 1#1=HELD/5"+reason; got != want {
					t.Errorf("got rows %s, want %s", got, want)
				}
			})
		}
	}
}

func TestWithNonceRecordsNoHashThatIsNone(t *testing.T) {
	n := start(t, newDisk(), "a")
	_ = n.WithNonce(t.Context(), signer, service.NonceOptions{RecordFirst: true}, func(ctx context.Context, h *service.Hold) (nonce.TxHash, error) {
		if err := h.Signed(ctx, nonce.TxHash{}); err == nil {
			t.Error("no hash was recorded, and the transaction may be sent")
		}
		return nonce.TxHash{}, nil
	})
}

func TestWithNonceFindsItsHoldAgainByTheRequestID(t *testing.T) {
	n := start(t, newDisk(), "a")
	o := service.NonceOptions{RequestID: "payment", Hold: 90 * time.Second}
	var seen []int64
	for range 2 {
		_ = n.WithNonce(t.Context(), signer, o, func(_ context.Context, h *service.Hold) (nonce.TxHash, error) {
			seen = append(seen, h.Nonce)
			return nonce.TxHash{}, errors.New("boom")
		})
	}
	if !slices.Equal(seen, []int64{0, 0}) {
		t.Errorf("got the nonces %v, want the same twice", seen)
	}
}

func TestWithNonceMayCallTheServiceAgainFromInside(t *testing.T) {
	for name, change := range map[string][]func(*service.Config){
		"worker": {slots(1)}, "callerRuns": {slots(1), callerRuns}, "basic": {basicMode},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", change...)
			err := n.WithNonce(t.Context(), signer, service.NonceOptions{}, func(ctx context.Context, _ *service.Hold) (nonce.TxHash, error) {
				for _, name := range []string{signer, "another of the same shard"} {
					err := n.WithNonce(ctx, name, service.NonceOptions{}, func(context.Context, *service.Hold) (nonce.TxHash, error) {
						return nonce.TxHash{9}, nil
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				return nonce.TxHash{8}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDoWithAContextThatEndsFirstIsUnknown(t *testing.T) {
	n := start(t, newDisk(), "a")
	began, open := n.disk.holdCommit(signer)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if got := refusal(n.Do(ctx, allocate(signer))); got != "unknown" {
		t.Errorf("got %q, want unknown", got)
	}
	open()
	n.want("allocate -> 1#1")
}

func TestDoSaysWhatIsKnownAlsoWhenItsContextHasEnded(t *testing.T) {
	n := start(t, newDisk(), "a", basicMode)
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		n.disk.onAfter(func(memstore.Call) error { cancel(); return nil })
		if err := n.Do(ctx, allocate(signer)); err != nil {
			t.Fatalf("op %d: %v", i, err)
		}
	}
}
