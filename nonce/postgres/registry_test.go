package postgres_test

import (
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// nodesOf reads the registry.
func nodesOf(t *testing.T, s nonce.Store) []lease.Node {
	t.Helper()
	list, _, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestANodeThatWasNotSeenForADayIsShownNoMoreUnlessItsPatienceIsLongerStill(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	for id, patience := range map[string]time.Duration{"silent": time.Hour, "stubborn": 3 * lease.Remembered} {
		if _, err := s.Register(t.Context(), lease.Presence{Node: id, Patience: patience}); err != nil {
			t.Fatal(err)
		}
	}
	conn := dial(t, url)
	execute(t, conn, `UPDATE gateway_node SET seen_at = seen_at - interval '1 day' + interval '1 hour'`)
	if list := nodesOf(t, s); len(list) != 2 || list[0].Live || !list[1].Live {
		t.Errorf("within the day: got %+v", list)
	}
	execute(t, conn, `UPDATE gateway_node SET seen_at = seen_at - interval '2 hours'`)
	if list := nodesOf(t, s); len(list) != 1 || list[0].Node != "stubborn" || !list[0].Live {
		t.Errorf("after it: got %+v", list)
	}
	if h, err := s.Register(t.Context(), lease.Presence{Node: "silent"}); err != nil || h.Incarnation != 2 {
		t.Errorf("it was forgotten: got %v, %v", h, err)
	}
}

// TestANodeOfAVersionThatSaysLessIsShownWithoutAMode: both versions run side by
// side while they are rolled out.
func TestANodeOfAVersionThatSaysLessIsShownWithoutAMode(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	execute(t, dial(t, url), `
		INSERT INTO gateway_node (node_id, url, incarnation, counter, live, started_at, seen_at)
		VALUES ('older', 'ws://older', 7, 3, true, clock_timestamp(), clock_timestamp())`)
	list := nodesOf(t, s)
	if len(list) != 1 || list[0].Holder != (lease.Holder{Node: "older", Incarnation: 7}) || list[0].Mode != "" || list[0].Signers != 0 || !list[0].Live {
		t.Errorf("got %+v", list)
	}
}
