package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

// drillTimeout is the safety net of a drill in a test.
const drillTimeout = 90 * time.Second

// drill runs a command, and fails the test when it ends otherwise than with code
// or does not say the texts.
func drill(t *testing.T, ctx context.Context, args []string, code int, texts ...string) programEnd {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, drillTimeout)
	defer cancel()
	end := runProgram(ctx, args...)
	if end.code != code {
		t.Errorf("exit status %d, want %d\n%s%s", end.code, code, end.stdout, end.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(end.stdout+end.stderr, text) {
			t.Errorf("it does not say %q:\n%s%s", text, end.stdout, end.stderr)
		}
	}
	return end
}

func decode[T any](t *testing.T, end programEnd) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(end.stdout), &v); err != nil {
		t.Fatalf("%v\n%s%s", err, end.stdout, end.stderr)
	}
	return v
}

func verdict(t *testing.T, all []result.Verdict, name string) result.Verdict {
	t.Helper()
	for _, v := range all {
		if strings.Contains(v.Name, name) {
			return v
		}
	}
	t.Fatalf("no verdict on %s in %+v", name, all)
	return result.Verdict{}
}

func TestWrongDrillsAreRefusedByTheirFlag(t *testing.T) {
	restart := []string{"restart", "--gateway", "ws://127.0.0.1:1/ws=gateway"}
	compare := []string{"compare", "--a=a", "--b=b"}
	for _, wrong := range []struct {
		args []string
		flag string
	}{
		{[]string{"slow", "--slow-share=0"}, "--slow-share"},
		{[]string{"slow", "--slow-share=1"}, "--slow-share"},
		{[]string{"slow", "--connections=1"}, "--connections"},
		{[]string{"slow", "--rate=0"}, "--rate"},
		{[]string{"slow", "--rounds=0"}, "--rounds"},
		{[]string{"slow", "--max-p99-ratio=0"}, "--max-p99-ratio"},
		{[]string{"slow", "--behaviour=sulk"}, "--behaviour"},
		{[]string{"slow", "--duration=0s"}, "--duration"},
		{[]string{"slow", "--url=http://x"}, "--url"},
		{[]string{"slow", "--metrics=x"}, "--metrics"},
		{[]string{"churn", "--rate=0"}, "--rate"},
		{[]string{"churn", "--requests=0"}, "--requests"},
		{[]string{"churn", "--abrupt=2"}, "--abrupt"},
		{[]string{"churn", "--max-open=0"}, "--max-open"},
		{[]string{"churn", "--settle=-1s"}, "--settle"},
		{[]string{"churn", "--max-failed-share=2"}, "--max-failed-share"},
		{[]string{"restart"}, "--gateway"},
		{[]string{"restart", "--gateway=ws://x"}, "--gateway"},
		{[]string{"restart", "--gateway=ws://x='a"}, "--gateway"},
		{append(restart, "--ready=http://x", "--ready=http://y"), "--ready"},
		{append(restart, "--before=0s"), "--before"},
		{append(restart, "--rounds=0"), "--rounds"},
		{append(restart, "--rate=0"), "--rate"},
		{append(restart, "--connections=0"), "--connections"},
		{append(restart, "--stop-timeout=0s"), "--stop-timeout"},
		{[]string{"compare", "--a=a"}, "--b"},
		{[]string{"compare", "--a='a", "--b=b"}, "--a"},
		{append(compare, "--rounds=0"), "--rounds"},
		{append(compare, "--min-ratio=-1"), "--min-ratio"},
		{append(compare, "--max-p99-ratio=-1"), "--max-p99-ratio"},
		{append(compare, "--start-timeout=0s"), "--start-timeout"},
	} {
		t.Run(strings.Join(wrong.args, " "), func(t *testing.T) {
			drill(t, t.Context(), wrong.args, exitUsage, wrong.flag)
		})
	}
}

func TestADrillOnNobodyNamesTheAddress(t *testing.T) {
	for _, command := range []string{"slow", "churn"} {
		drill(t, t.Context(), []string{command, "--url=ws://127.0.0.1:1/ws"}, exitFailure, "ws://127.0.0.1:1/ws", "is the gateway running? (make run)")
	}
}
