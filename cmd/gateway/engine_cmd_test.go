package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A member that is not known would be taken for one that is obeyed: a dry_run switched.
func TestAnOrderThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := new(app) // without an engine: what is understood is refused with 409
	a.cfg = &Config{}
	a.cfg.Store = "sqlite:x.db"
	h := http.NewServeMux()
	a.engineHandlers(h)
	long := `{"to":"reliable"` + strings.Repeat(" ", maxQuestion) + "}"
	for _, c := range []struct {
		path, body string
		code       int
		said       string // of "error"; "": nothing that is about the order
	}{
		{"/engine/switch", `{"to":"performance","dry_run":true}`, 400, "dry_run: unknown name"},
		{"/engine/switch", `{"to":"performance","dryrun":true}`, 400, "dryrun: unknown name"},
		{"/engine/switch", `{"to":"performance","dryRun":true,"dryRun":false}`, 400, "dryRun: given twice"},
		{"/engine/switch", `{"to":"performance","dryRun":1}`, 400, "dryRun: must be true or false"},
		{"/engine/switch", `{"to":1}`, 400, "to: must be a string"},
		{"/engine/switch", `{"to":"up"}`, 400, `to: "up" is neither performance nor reliable`},
		{"/engine/switch", `{}`, 400, `to: "" is neither performance nor reliable`},
		{"/engine/switch", `{"to":"reliable"} {"to":"performance"}`, 400, "the body: must be valid JSON"},
		{"/engine/switch", `{"to":"reliable"}x`, 400, "the body: must be valid JSON"},
		{"/engine/switch", ``, 400, "the body: must be valid JSON"},
		{"/engine/switch", `["reliable"]`, 400, "the body: must be an object"},
		{"/engine/switch", long, 400, "the body must be at most 4096 bytes"},
		{"/engine/switch?dryRun=true", `{"to":"reliable"}`, 400, "the URL must have no parameters; what is asked for is said in the body"},
		{"/engine/switch", `{"to":"performance","dryRun":true}` + "\n", 409, ""},
		{"/engine/reconcile", `{"dryRun":true}`, 400, "dryRun: unknown name"},
		{"/engine/replay", `{"dead":true}`, 400, "dead: unknown name"},
		{"/engine/replay", `{}`, 409, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body)))
		var said engineRefusal
		err := json.Unmarshal(w.Body.Bytes(), &said)
		if err != nil || w.Code != c.code || c.said != "" && said.Error != c.said {
			t.Errorf("%s %.60s: %d %q, %v, want %d %q", c.path, c.body, w.Code, said.Error, err, c.code, c.said)
		}
	}
}
