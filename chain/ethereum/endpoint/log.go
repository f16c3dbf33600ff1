package endpoint

import (
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// seldom writes lines that a client can cause at will: each text once a second. The counters of
// what they tell count all of it.
type seldom struct{ lines sync.Map } // *rate.Sometimes by text, of which there are few

func (s *seldom) warn(log *slog.Logger, text string, args ...any) {
	line, _ := s.lines.LoadOrStore(text, &rate.Sometimes{Interval: time.Second})
	line.(*rate.Sometimes).Do(func() { log.Warn(text, args...) })
}
