package ws

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAGetWithoutTheHeadersOfAWebSocketIsToldWhichAreMissing(t *testing.T) {
	p := known("ada")
	p.Refuse(errors.New("must not be asked"))
	g := guardedGateway(t, p)
	answer, err := http.Get("http://" + g.address + "/ws")
	must(t, err)
	said, err := io.ReadAll(answer.Body)
	must(t, errors.Join(err, answer.Body.Close()))
	if answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Sec-Websocket-Version") != "13" ||
		!strings.Contains(string(said), "Upgrade: websocket and Connection: Upgrade") {
		t.Errorf("%d %s", answer.StatusCode, said)
	}
	g.WantMetrics(map[string]float64{"upgrade_refused_total{bad_request}": 1, "upgrade_refused_total{broken}": 0})
}
