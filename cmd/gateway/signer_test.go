package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is not understood is asked of nobody: a misspelled filter would list everything.
func TestAQuestionForSignersThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := &app{cfg: new(Config)} // it has no service: who asks it has understood
	h := http.NewServeMux()
	a.signerHandlers(h)
	for query, want := range map[string]string{
		"filter=gaps":                `filter: "gaps" must be all, gap, unknown, overdue, repeated or stopped`,
		"filter=GAP":                 `filter: "GAP" must be all, gap, unknown, overdue, repeated or stopped`,
		"filter=gap&filter=all":      `filter: given twice`,
		"limit=0":                    `limit: must be 1 to 1000`,
		"limit=1001":                 `limit: must be 1 to 1000`,
		"limit=-1":                   `limit: must be 1 to 1000`,
		"limit=ten":                  `limit: must be 1 to 1000`,
		"limit=1e2":                  `limit: must be 1 to 1000`,
		"limit=99999999999999999999": `limit: must be 1 to 1000`,
		"state=gap":                  `"state": there are filter, after, limit and others`,
		"Filter=gap":                 `"Filter": there are filter, after, limit and others`,
		strings.Repeat("x", 100):     `"` + strings.Repeat("x", 40) + `": there are filter, after, limit and others`,
		"filter=%zz":                 `the parameters cannot be read`,
		"filter=gap;limit=5":         `the parameters cannot be read`,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/signers?"+query, nil))
		got := w.Body.String()
		if sentence := strings.ReplaceAll(want, `"`, `\"`); w.Code != http.StatusBadRequest || got != `{"error":"`+sentence+`"}`+"\n" {
			t.Errorf("%s: %d %swant %s", query, w.Code, got, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(method, "/signers", nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}
