package endpoint

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWarningThatAClientCausesAtWillIsWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, list := slog.New(slog.NewTextHandler(&out, nil)), newWarnings()
		wantLines := func(n int) {
			t.Helper()
			if got := strings.Count(out.String(), "\n"); got != n {
				t.Errorf("%d lines, want %d", got, n)
			}
		}
		for range 1000 {
			list.loose.warn(log, "one")
		}
		wantLines(1)
		list.reissued.warn(log, "another kind")
		wantLines(2)
		time.Sleep(time.Second)
		list.loose.warn(log, "one")
		wantLines(3)
	})
}
