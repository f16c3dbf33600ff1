package main

import (
	"slices"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/target"
)

func TestANegativeNumberIsTheValueOfTheFlagBeforeIt(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"run --rate -1 --verify", "run --rate=-1 --verify"},
		{"run --warmup -.5s", "run --warmup=-.5s"},
		{"run --rate=1 -1", "run --rate=1 -1"},
		{"run -1", "run -1"},
		{"-1", "-1"},
		{"run --json - --html x", "run --json - --html x"},
		{"run --html --verify", "run --html --verify"},
	} {
		if got := joinNegative(strings.Fields(test.args)); !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%s: %q, want %s", test.args, got, test.want)
		}
	}
}

func TestAnAddressWithoutAPathGetsThatOfAGateway(t *testing.T) {
	for address, want := range map[string]string{
		"ws://h:1":       "ws://h:1/ws",
		"ws://h:1/":      "ws://h:1/ws",
		"wss://h/?a=b":   "wss://h/ws?a=b",
		"ws://h/ws":      "ws://h/ws",
		"ws://h/other":   "ws://h/other",
		"localhost:8080": "localhost:8080", // refused by its rule, as it was written
		"ws://":          "ws://",
	} {
		if got := withPath(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	g := target.StartGateway(t, "--max-holds=4096")
	address := strings.TrimSuffix(g.URL, "/ws")
	if o := runProgram(t.Context(), quick(address)...); o.code != exitOK {
		t.Errorf("exit %d: %s", o.code, o.stderr)
	}
	if url, _, err := splitGateway("ws://h:1=gateway serve"); url != "ws://h:1/ws" || err != nil {
		t.Errorf("--gateway: %s, %v", url, err)
	}
}

func TestAWrongPathIsAnsweredWithTheRightOne(t *testing.T) {
	g := target.StartGateway(t)
	address := strings.TrimSuffix(g.URL, "/ws") + "/socket"
	for _, args := range [][]string{quick(address), {"verify", "--url", address}, {"slow", "--url", address}, {"churn", "--url", address}} {
		if o := runProgram(t.Context(), args...); o.code != exitFailure || !strings.Contains(o.stderr, "at /ws") {
			t.Errorf("%s: exit %d, %q", args[0], o.code, o.stderr)
		}
	}
}
