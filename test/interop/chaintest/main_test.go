//go:build unix

package chaintest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
	}
	goleak.VerifyTestMain(m, Leftovers()...)
}
