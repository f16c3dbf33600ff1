package nearest

import (
	"strings"
	"testing"
)

func TestTheNearestWordIsFoundAndNoDistantOne(t *testing.T) {
	known := []string{"NONCEGATE_HOLD_TTL", "NONCEGATE_LEASE_TTL", "nonce_allocate", "nonce_extend", "key"}
	for typed, want := range map[string]string{
		"NONCEGATE_HOLDTTL": "NONCEGATE_HOLD_TTL",
		"nonce_alocate":     "nonce_allocate",
		"allocate":          "",
		"kay":               "key",
		"xyz":               "",
		"":                  "",
		"nonce_allocate" + strings.Repeat("x", 64): "",
	} {
		if got := Word(typed, known); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}
