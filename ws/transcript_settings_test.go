package ws

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/internal/access/audit"
	"noncegate/test/lab/expect"
)

// variant is one way to play a transcript: the words of its "== with" lines, each with
// one of its values.
type variant struct {
	name  string // of the values of which there are several
	words []string
}

// variants are the ways to play a text.
func variants(text string) []variant {
	all := []variant{{}}
	for line := range strings.Lines(text) {
		words, ok := strings.CutPrefix(strings.TrimSpace(line), "== with ")
		if !ok {
			continue
		}
		for _, word := range strings.Fields(words) {
			all = withEach(all, word)
		}
	}
	return all
}

func withEach(all []variant, word string) (more []variant) {
	name, list, _ := strings.Cut(word, "=")
	values := strings.Split(list, ",")
	for _, v := range all {
		for _, value := range values {
			one := variant{name: v.name, words: append(slices.Clone(v.words), name+"="+value)}
			if len(values) > 1 {
				one.name = strings.TrimSpace(one.name + " " + value)
			}
			more = append(more, one)
		}
	}
	return more
}

// set is a setting of "== with": a field of one of the configurations, or one of its own.
func (w *world) set(s *setup, name, value string) (err error) {
	if of, field, ok := strings.Cut(name, "."); ok {
		configs := map[string]any{"ws": &s.ws, "service": &s.Service, "guard": &s.guard}
		if configs[of] == nil {
			return fmt.Errorf("there is no configuration %s", of)
		}
		return expect.Set(configs[of], field, value)
	}
	switch name {
	case "mode":
		mode := workModes[value]
		if mode == nil {
			return fmt.Errorf("there is no mode %s", value)
		}
		mode(s)
	case "locks":
		s.locks = w.locks
	case "chain-wait":
		w.chain.patient = true
		w.chain.wait, err = time.ParseDuration(value)
	case "queue-bytes":
		marks := &s.ws.Writer.Marks
		marks.Low, marks.High = 10, 20
		marks.Max, err = strconv.ParseInt(value, 10, 64)
	case "other-chains":
		w.chain.only = value
	case "audit":
		if w.auditLevel, err = audit.ParseLevel(value); err != nil {
			return err
		}
		w.auditSaid = []string{}
		w.auditLog, err = audit.New(slog.NewJSONHandler(&w.auditOut, nil), audit.Config{Level: w.auditLevel, Queue: 100, LoginsRefused: 100, CallsRefused: 100})
		s.ws.Audit = w.auditLog
	default:
		return fmt.Errorf("there is no setting %s", name)
	}
	return err
}
