package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestASignerOfAChainThatIsNotConfiguredIsRefusedOrToldToTheOperator(t *testing.T) {
	const sentence = "no chain eip155:10 is configured, so that nobody knows where the account stands; there is eip155:1"
	for policy, refused := range map[string]string{"refuse": sentence, "warn": ""} {
		var out bytes.Buffer
		a := &app{cfg: &Config{ChainConfig: ChainConfig{Chain: []string{"eip155:1=ws://a"}, OtherChains: policy}}, log: slog.New(slog.NewTextHandler(&out, nil))}
		look := a.otherChain()
		if got := look("eip155:10:0xab"); got != refused {
			t.Errorf("%s: %q, want %q", policy, got, refused)
		}
		if warned := strings.Contains(out.String(), sentence); warned != (policy == "warn") {
			t.Errorf("%s: log %q", policy, out.String())
		}
		if got := look("eip155:1:0xab") + look("mine"); got != "" {
			t.Errorf("%s: %q", policy, got)
		}
	}
	if a := (&app{cfg: &Config{ChainConfig: ChainConfig{OtherChains: "refuse"}}}); a.otherChain() != nil {
		t.Error("without chains, signers are looked at")
	}
}
