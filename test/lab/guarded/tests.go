//go:build unix

package guarded

import (
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests beside one server, which *server points at meanwhile, and returns the exit code. It fails the run
// when the server cannot be started, or when the tests leave goroutines behind beyond those that options ignore.
func Main[S io.Closer](m *testing.M, server *S, start func() (S, error), options ...goleak.Option) int {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = s
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
