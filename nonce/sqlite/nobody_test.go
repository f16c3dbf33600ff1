//go:build unix && !linux

package sqlite_test

import "testing"

// asNobody runs fn; where tests run as root, its files are writable to all.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	fn()
}
