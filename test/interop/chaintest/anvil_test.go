//go:build unix

package chaintest

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"noncegate/test/lab/guarded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, Leftovers()...) }

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	_, err := newAnvil(t, "--no-such-argument")
	if err == nil || !errors.Is(err, guarded.ErrEnded) || !strings.Contains(err.Error(), "--no-such-argument") {
		t.Errorf("it said %v", err)
	}
}
