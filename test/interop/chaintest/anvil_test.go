//go:build unix

package chaintest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// fatal is a T without a test. It remembers how it failed.
type fatal struct {
	ctx  context.Context
	said string
	ends []func()
}

func (f *fatal) Helper()                  {}
func (f *fatal) Logf(string, ...any)      {}
func (f *fatal) Cleanup(end func())       { f.ends = append(f.ends, end) }
func (f *fatal) Context() context.Context { return f.ctx }
func (f *fatal) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}

// failing runs what must fail and returns what it said.
func failing(t *testing.T, run func(T)) string {
	t.Helper()
	f := &fatal{ctx: t.Context()}
	defer func() {
		for _, end := range f.ends {
			end()
		}
	}()
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		run(f)
	}()
	return f.said
}

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	said := failing(t, func(t T) { StartAnvil(t, "--no-such-argument") })
	if !strings.Contains(said, "anvil ended") || !strings.Contains(said, "--no-such-argument") {
		t.Errorf("it said %q", said)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if said := failing(t, func(t T) { StartAnvil(t) }); !strings.Contains(said, "install Node.js and npm") {
		t.Errorf("without npm it said %q", said)
	}
}
