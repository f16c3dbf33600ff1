//go:build unix

package redistest

import (
	"strings"
	"testing"
)

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	if _, err := Start("no-such-setting 1"); err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("a setting that does not exist: %v, want what the server says", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("without a server: %v, want what to install", err)
	}
}
