package ws

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"noncegate/nonce"
	"noncegate/wire"
)

// Those that a client can bring about on one node are in the transcripts.
func TestErrorsOfTheServiceOnTheWire(t *testing.T) {
	for _, c := range []struct {
		err     error
		code    int
		reason  string
		stage   string
		outcome string
		retryMs int64
	}{
		{err: nonce.ErrBusy, code: -32005, reason: "server_busy", stage: "worker", retryMs: 50},
		{err: nonce.ErrDraining, code: -32019, reason: "draining", retryMs: 1000},
		{err: &nonce.UnavailableError{Outcome: nonce.NotSent}, code: -32012, reason: "unavailable", outcome: "none", retryMs: 500},
		{err: &nonce.UnavailableError{Outcome: nonce.Aborted}, code: -32012, reason: "unavailable", outcome: "none", retryMs: 500},
		{err: &nonce.UnavailableError{Outcome: nonce.Unknown}, code: -32012, reason: "unavailable", outcome: "unknown", retryMs: 500},
		{err: nonce.ErrNewSigner, code: -32014, reason: "not_found"},
		{err: &nonce.UnavailableError{Outcome: nonce.NotSent, Err: nonce.ErrChainUnknown}, code: -32012, reason: "unavailable", outcome: "none", retryMs: 500},
		{err: nonce.ErrInternal, code: -32603, reason: "internal"},
		{err: nonce.ErrForwardBusy, code: -32005, reason: "server_busy", stage: "forward", retryMs: 50},
		{err: nonce.ErrPeerAway, code: -32012, reason: "unavailable", outcome: "none", retryMs: 500},
		{err: &nonce.UnavailableError{Outcome: nonce.NotSent, Err: nonce.ErrPeerAway}, code: -32012, reason: "unavailable", outcome: "none", retryMs: 500},
		{err: &nonce.UnavailableError{Outcome: nonce.Unknown, Err: nonce.ErrPeerAway}, code: -32012, reason: "unavailable", outcome: "unknown", retryMs: 500},
		{err: errors.New("of nobody we know"), code: -32012, reason: "unavailable", outcome: "unknown", retryMs: 500},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			got := errorOf(err, "a", 1)
			want := wire.ErrorData{Reason: c.reason, Stage: c.stage, Outcome: c.outcome, RetryAfterMs: c.retryMs}
			d := got.Data
			if got.Code != c.code || d.Reason != want.Reason || d.Stage != want.Stage || d.Outcome != want.Outcome || d.RetryAfterMs != want.RetryAfterMs {
				t.Errorf("%v: got %d %+v, want %d %+v", err, got.Code, *d, c.code, want)
			}
		}
	}
}

func TestAConflictShowsNoMoreHoldsThanWereAskedFor(t *testing.T) {
	e := &nonce.ConflictError{Nonce: -1, Holds: make([]nonce.HoldState, 5)}
	for count, want := range map[int]int{0: 1, 1: 1, 3: 3, 5: 5, 9: 5} {
		if got := len(errorOf(e, "a", count).Data.Nonces); got != want {
			t.Errorf("%d asked for: %d shown, want %d", count, got, want)
		}
	}
	if e.Nonce != -1 || errorOf(e, "a", 1).Data.Nonce != nil {
		t.Error("no nonce is meant, but one is named")
	}
}

func TestARefusalSaysWhichRuleItStandsFor(t *testing.T) {
	if d := errorOf(nonce.ErrNewSigner, "a", 1).Data; d.Cause != wire.CauseNewSigner || d.Signer != "a" {
		t.Errorf("a new signer: %+v", d)
	}
	unknown := &nonce.ConflictError{Nonce: 4, Status: nonce.Held, Unknown: true, Holds: []nonce.HoldState{{Status: nonce.Held, Unknown: true}}}
	if d := errorOf(unknown, "a", 1).Data; d.Status != wire.StatusUnknown || d.Nonces[0].Status != wire.StatusUnknown {
		t.Errorf("an unknown hold: %+v", d)
	}
}

func TestTextsOfOthersAreCutByWhatTheyAreInJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"short", "short"},
		{strings.Repeat("x", 200), strings.Repeat("x", 192)},
		{strings.Repeat(`"`, 200), strings.Repeat(`"`, 96)},
		{strings.Repeat("\n", 200), strings.Repeat("\n", 32)},
		{strings.Repeat("ü", 200), strings.Repeat("ü", 96)},
		{strings.Repeat("\xff", 200), strings.Repeat("\xff", 32)},
	} {
		if got := clip(c.text); got != c.want {
			t.Errorf("%.3q: %d bytes are left, want %d", c.text, len(got), len(c.want))
		}
	}
}

func TestANodeThatWasNotReachedIsNamed(t *testing.T) {
	got := errorOf(&nonce.UnavailableError{Outcome: nonce.NotSent, Err: &nonce.PeerAwayError{Node: "n2", URL: "ws://n2/ws"}}, "a", 1)
	if want := "unavailable: node n2, which owns the signer, is not reached from here; nothing happened"; got.Message != want {
		t.Errorf("got %q, want %q", got.Message, want)
	}
	if d := got.Data; d.OwnerNode != "n2" || d.OwnerURL != "ws://n2/ws" || d.Outcome != "none" {
		t.Errorf("got %+v, want the owner in it", d)
	}
}
