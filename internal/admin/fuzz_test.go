package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzQuestion: no body of an order to switch makes what reads it panic, and none is taken that has a member that would
// be passed over.
func FuzzQuestion(f *testing.F) {
	for _, body := range []string{
		`{"to":"performance","dryRun":true,"reason":"x"}`, `{"to":"reliable"}`, `[]`, `{"to":1}`, `{"to":"reliable"}{`, `{"to":"reliable","dry_run":true}`,
		``, strings.Repeat(" ", maxQuestion+1) + `{"to":"reliable"}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		_, err := readQuestion[SwitchOrder](r, 0)
		if _, bad := errors.AsType[*badQuestion](err); err != nil && !bad {
			t.Fatal(err)
		}
		var members map[string]any
		if err == nil {
			err = json.Unmarshal([]byte(body), &members)
			for _, known := range []string{"to", "dryRun", "reason"} {
				delete(members, known)
			}
			if err != nil || len(members) > 0 {
				t.Errorf("%q is taken: %v, %v", body, err, members)
			}
		}
	})
}
