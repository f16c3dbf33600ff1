package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open starts a Log of which the test reads the lines once it is stopped.
func open(t testing.TB, to io.Writer, cfg Config) *Log {
	t.Helper()
	l, err := New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: slog.LevelError}), cfg)
	expect.Must(t, err)
	return l
}

func stop(t testing.TB, l *Log) {
	t.Helper()
	expect.Check(t, l.Stop(context.Background()))
}

func lines(t testing.TB, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func roomy(level Level) Config {
	return Config{Level: level, Queue: 100, LoginsRefused: 100, CallsRefused: 100}
}

func TestALineSaysWhoDidWhatWhateverTheLevelOfTheLog(t *testing.T) {
	var out bytes.Buffer
	l := open(t, &out, roomy(Refusals))
	l.Add(Entry{At: time.Now(), Event: Call, Principal: "ada", Credential: "key:1", Address: "192.0.2.1:1", Method: "nonce_allocate",
		Signer: "s", HasNonce: true, Count: 3, Outcome: "ok"})
	l.Add(Entry{At: time.Now(), Event: Login})
	stop(t, l)
	got := lines(t, out.String())
	for key, want := range map[string]any{
		"msg": "call", "component": "audit", "principal": "ada", "credential": "key:1", "remote": "192.0.2.1:1",
		"method": "nonce_allocate", "signer": "s", "nonce": 0.0, "count": 3.0, "outcome": "ok",
	} {
		if got[0][key] != want {
			t.Errorf("%s is %v, want %v", key, got[0][key], want)
		}
	}
	if len(got) != 2 || len(got[1]) != 4 { // time, level, msg, component
		t.Errorf("got %v", got)
	}
	if l.Written() != 2 || l.Dropped() != 0 {
		t.Errorf("%d written and %d dropped are counted", l.Written(), l.Dropped())
	}
}

func TestLevels(t *testing.T) {
	for l := Off; l <= All; l++ {
		parsed, err := ParseLevel(l.String())
		if err != nil || parsed != l {
			t.Errorf("%v is read as %v, %v", l, parsed, err)
		}
	}
	if _, err := ParseLevel("everything"); err == nil || !strings.Contains(err.Error(), "off or refusals or changes or all") {
		t.Errorf("got %v", err)
	}
	var none *Log
	if none.Wants(Refusals) || none.Stop(context.Background()) != nil {
		t.Error("without a log something is wanted")
	}
	l := open(t, io.Discard, roomy(Changes))
	defer stop(t, l)
	for level, want := range map[Level]bool{Refusals: true, Changes: true, All: false} {
		if l.Wants(level) != want {
			t.Errorf("%v wanted: %v", level, !want)
		}
	}
	if off, err := New(nil, Config{}); off != nil || err != nil {
		t.Errorf("off: %v, %v", off, err)
	}
	if _, err := New(nil, Config{Level: All}); err == nil {
		t.Error("no queue, and no error")
	}
}

// hanging is a log whose reader has stopped.
type hanging struct {
	bytes.Buffer
	entered chan struct{}
	let     chan struct{}
}

func (h *hanging) Write(p []byte) (int, error) {
	h.entered <- struct{}{}
	<-h.let
	return h.Buffer.Write(p)
}

func TestALogThatHangsKeepsNobodyUpAndTheNextLineSaysWhatIsMissing(t *testing.T) {
	out := &hanging{entered: make(chan struct{}, 100), let: make(chan struct{})}
	l := open(t, out, Config{Level: All, Queue: 2, LoginsRefused: 1, CallsRefused: 1})
	entry := Entry{Event: Login}
	l.Add(entry)
	<-out.entered // it hangs
	for range 5 { // two wait, three are left out
		l.Add(entry)
	}
	if l.Dropped() != 3 {
		t.Errorf("%d dropped, want 3", l.Dropped())
	}
	out.let <- struct{}{}
	<-out.entered // there is room again
	l.Add(entry)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("no time"))
	if err := l.Stop(ctx); err == nil || !strings.Contains(err.Error(), "2 lines of the audit were not written: no time") {
		t.Errorf("a stop without time: %v", err)
	}
	close(out.let)
	stop(t, l)
	l.Add(entry) // after the end it is only counted
	got := lines(t, out.String())
	if len(got) != 4 || got[2]["missing"] != nil || got[3]["missing"] != 3.0 {
		t.Errorf("got %v", got)
	}
	if l.Dropped() != 4 {
		t.Errorf("%d dropped, want 4", l.Dropped())
	}
}

func TestRefusalsAreWrittenUpToARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := open(t, &out, Config{Level: Refusals, Queue: 1000, LoginsRefused: 1, CallsRefused: 2})
		for range 100 {
			l.Refused(Entry{Event: LoginRefused})
		}
		l.Add(Entry{Event: Login}) // is not held back by them
		for range 100 {
			l.Refused(Entry{Event: Call})
		}
		time.Sleep(time.Second)
		l.Refused(Entry{Event: LoginRefused})
		stop(t, l)
		count := map[any]int{}
		missing := 0.0
		for _, line := range lines(t, out.String()) {
			count[line["msg"]]++
			n, _ := line["missing"].(float64)
			missing += n
		}
		if count["login_refused"] != 11 || count["login"] != 1 || count["call"] != 20 || missing != 170 {
			t.Errorf("got %v with %v missing", count, missing)
		}
		if l.Dropped() != 170 {
			t.Errorf("%d dropped", l.Dropped())
		}
	})
}
