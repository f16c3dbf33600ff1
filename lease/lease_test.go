package lease

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) }

func TestAnOwnershipLastsUntilItsExpiry(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		g    Ownership
		want bool
	}{
		{Ownership{Holder: Holder{Node: "a"}, ExpiresAt: now.Add(1)}, true},
		{Ownership{Holder: Holder{Node: "a"}, ExpiresAt: now}, false},
		{Ownership{ExpiresAt: now.Add(time.Hour)}, false},
	} {
		if got := c.g.Held(now); got != c.want {
			t.Errorf("Held of %+v: got %v, want %v", c.g, got, c.want)
		}
	}
}
