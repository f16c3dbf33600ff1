package sqlite_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// asNobody runs fn without the rights of root, to whom all files are writable.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	fn()
}
