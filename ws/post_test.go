package ws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/test/lab/inprocess"
)

// post asks by POST, and returns the answer and what was said.
func (g *gateway) post(body string) (*http.Response, string) { g.Helper(); return g.postAs("", body) }

// postAs is post under a name.
func (g *gateway) postAs(who, body string) (*http.Response, string) {
	g.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+g.address+"/eth/1", strings.NewReader(body))
	must(g.TB, err)
	r.Header = inprocess.As(who)
	response, err := http.DefaultClient.Do(r)
	must(g.TB, err)
	text, err := io.ReadAll(response.Body)
	must(g.TB, errors.Join(err, response.Body.Close()))
	return response, string(text)
}

func TestEachLoginByPostIsAuditedOnceASocket(t *testing.T) {
	var out bytes.Buffer
	log, err := audit.New(slog.NewJSONHandler(&out, nil), audit.Config{Level: audit.Refusals, Queue: 100, LoginsRefused: 100, CallsRefused: 100})
	must(t, err)
	g := guardedGateway(t, known("ada", "bob"), func(s *setup) { s.ws.Audit = log })
	at := g.speak(newParrot())
	for _, who := range []string{"ada", "ada", "bob", "bob", "eve"} {
		want := http.StatusOK
		if who == "eve" {
			want = http.StatusUnauthorized
		}
		if answer, said := at.postAs(who, `{"jsonrpc":"2.0","id":1,"method":"say"}`); answer.StatusCode != want {
			t.Fatalf("%s: %s %s", who, answer.Status, said)
		}
	}
	must(t, log.Stop(context.Background()))
	var got []string
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		must(t, json.Unmarshal([]byte(line), &e))
		got = append(got, fmt.Sprint(e["msg"], " ", e["principal"], " ", e["method"]))
	}
	want := "login ada POST /eth/1, login bob POST /eth/1, login_refused <nil> <nil>"
	if strings.Join(got, ", ") != want {
		t.Errorf("the audit says %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestABodyThatCannotBeReadIsChargedToWhoSentIt(t *testing.T) {
	g := startGateway(t, limited("ada", access.Quota{RequestsPerSecond: 0.001, Burst: 2}))
	at := g.speak(newParrot())
	for i, want := range []string{"parse_error", "parse_error", "server_busy"} {
		if _, said := at.postAs("ada", `{"jsonrpc`); !strings.Contains(said, want) {
			t.Errorf("body %d is answered %s, want %s", i+1, said, want)
		}
	}
}

func TestAGetWithoutTheHeadersOfAWebSocketIsToldWhichAreMissing(t *testing.T) {
	p := known("ada")
	p.Refuse(errors.New("must not be asked"))
	g := guardedGateway(t, p)
	for name, at := range map[string]*gateway{"/ws": g, "/eth/1": g.speak(newParrot())} {
		answer, err := http.Get("http://" + at.address + "/ws")
		must(t, err)
		said, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		if answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Sec-Websocket-Version") != "13" || !strings.Contains(string(said), "Upgrade: websocket and Connection: Upgrade") {
			t.Errorf("%s: %d %s", name, answer.StatusCode, said)
		}
	}
	g.WantMetrics(map[string]float64{"upgrade_refused_total{bad_request}": 2, "upgrade_refused_total{broken}": 0})
}
