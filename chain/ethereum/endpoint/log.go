package endpoint

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"
)

// warning is one that a client can cause at will. It is written once a second.
type warning struct{ seldom rate.Sometimes }

func (w *warning) warn(log *slog.Logger, text string, args ...any) {
	w.seldom.Do(func() { log.Warn(text, args...) })
}

func newWarning() warning { return warning{seldom: rate.Sometimes{Interval: time.Second}} }

// warnings are those of an endpoint, each kind by itself. The counters of what they tell count
// all of it.
type warnings struct {
	notKept, notStored, loose, reissued, refused, notMarked warning
}

func newWarnings() warnings {
	return warnings{newWarning(), newWarning(), newWarning(), newWarning(), newWarning(), newWarning()}
}
