//go:build unix

package gateway

import (
	"strings"
	"testing"
)

func TestAPatchMustFitOnce(t *testing.T) {
	for _, tt := range []struct{ file, old, want string }{
		{"nonce/rules/allocate.go", "no such text", "occurs 0 times"},
		{"nonce/rules/allocate.go", "nonce.Entry", "times, want once"},
		{"nonce/no such file.go", "x", "no such file or directory"},
	} {
		_, err := Overlay(t.Context(), t.TempDir(), []Patch{{tt.file, tt.old, ""}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("patch of %q in %s: %v, want an error that says %q", tt.old, tt.file, err, tt.want)
		}
	}
}
