package ws

import (
	"os"
	"strings"
	"testing"
)

// TestEveryCloseReasonIsExplained where an operator meets it.
func TestEveryCloseReasonIsExplained(t *testing.T) {
	for path, marks := range map[string]string{"../docs/metrics.md": "`", "../dashboards/connections.json": ""} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range closeReasons {
			if !strings.Contains(string(text), marks+string(reason)+marks) {
				t.Errorf("%s does not explain the close reason %s", path, reason)
			}
		}
	}
}
