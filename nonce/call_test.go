package nonce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func TestWithNonceMarksByWhatItsFunctionReturns(t *testing.T) {
	for name, mode := range map[string]func(*nonce.Config){"worker": func(*nonce.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", mode)
			var boom = errors.New("boom")
			for _, test := range []struct {
				hash byte
				err  error
				rows string
			}{
				{7, nil, "0#1=CONSUMED/7"},
				{0, boom, "0#1=CONSUMED/7 1#1=RELEASED/handler_error"},
				{0, fmt.Errorf("%w: %w", nonce.ErrMaybeSent, boom), "0#1=CONSUMED/7 1#2=HELD"},
			} {
				err := n.WithNonce(t.Context(), signer, func(ctx context.Context, h nonce.Hold) (nonce.TxHash, error) {
					if until, ok := ctx.Deadline(); !ok || !until.Equal(h.Deadline) {
						t.Errorf("got deadline %v, want %v", until, h.Deadline)
					}
					return nonce.TxHash{31: test.hash}, test.err
				})
				if !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
				if got := n.disk.rows(t, signer); got != test.rows {
					t.Errorf("after %v: got rows %s, want %s", test.err, got, test.rows)
				}
			}
			func() {
				defer func() { recover() }()
				n.WithNonce(t.Context(), signer, func(context.Context, nonce.Hold) (nonce.TxHash, error) { panic("boom") })
			}()
			if got, want := n.disk.rows(t, signer), "0#1=CONSUMED/7 1#2=HELD 2#1=HELD"; got != want {
				t.Errorf("after a panic: got rows %s, want %s", got, want)
			}
		})
	}
}

func TestWithNonceMayCallTheServiceAgainFromInside(t *testing.T) {
	for name, change := range map[string][]func(*nonce.Config){
		"worker": {places(1)}, "callerRuns": {places(1), callerRuns}, "basic": {basicMode},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", change...)
			err := n.WithNonce(t.Context(), signer, func(ctx context.Context, h nonce.Hold) (nonce.TxHash, error) {
				for _, name := range []string{signer, "another of the same shard"} {
					err := n.WithNonce(ctx, name, func(context.Context, nonce.Hold) (nonce.TxHash, error) {
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
