package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"noncegate/wire"
)

func event(nonce, missed string) string {
	return `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":` +
		`{"type":"allocated","signer":"s","nonce":` + nonce + `,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z","missed":` + missed + `}}}`
}

func TestWatchPrintsEventsComesBackAndSaysWhatIsMissing(t *testing.T) {
	var subscribed int
	url := fakeGateway(t, func(r request) []string {
		switch {
		case r.Method != wire.MethodSubscribe && subscribed == 0:
			t.Errorf("called %s before subscribing", r.Method)
		case r.Method != wire.MethodSubscribe:
			return nil // leaving
		case string(r.Params) != `["events",{"signers":["s"]}]`:
			t.Errorf("subscribed with %s", r.Params)
		}
		subscribed++
		live := `{"jsonrpc":"2.0","id":ID,"result":"0x1"}`
		if subscribed == 1 {
			return []string{live, event("1", "0"), "this ends the connection"}
		}
		return []string{live, event("2", "3")}
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	exit := make(chan int, 1)
	go func() {
		exit <- run(ctx, []string{"watch", "s", "--url", url}, stdout, &stderr)
		stdout.Close()
	}()

	var lines []string
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if lines = append(lines, scan.Text()); len(lines) == 2 {
			interrupt()
		}
	}
	want := []string{
		`{"type":"allocated","signer":"s","nonce":1,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z"}`,
		`{"type":"allocated","signer":"s","nonce":2,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z","missed":3}`,
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("printed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if code := <-exit; code != exitOK {
		t.Errorf("exit %d after an interrupt", code)
	}
	for _, said := range []string{"any number of events may be missing", "missed=3"} {
		if !strings.Contains(stderr.String(), said) {
			t.Errorf("stderr does not say %q:\n%s", said, stderr.String())
		}
	}
}
