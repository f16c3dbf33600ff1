package chain

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestASignerOfAChainThatIsNotConfiguredIsRefusedOrToldToTheOperator(t *testing.T) {
	const sentence = "no chain eip155:10 is configured, so that nobody knows where the account stands; there is eip155:1"
	for policy, refused := range map[Others]string{OthersRefused: sentence, OthersWarned: "", "allow": ""} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		c := NewChains([]*Tracker{New(newFakeChain(), Config{}, prometheus.NewRegistry(), log)}, ChainsConfig{Others: policy}, log)
		if got := c.Refuses("eip155:10:0xab"); got != refused {
			t.Errorf("%s: %q, want %q", policy, got, refused)
		}
		if warned := strings.Contains(out.String(), sentence); warned != (policy == OthersWarned) {
			t.Errorf("%s: log %q", policy, out.String())
		}
		if got := c.Refuses("eip155:1:0xab") + c.Refuses("mine"); got != "" {
			t.Errorf("%s: %q", policy, got)
		}
	}
}
