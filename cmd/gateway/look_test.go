package main

import (
	"strings"
	"testing"

	"noncegate/wire"
)

// answering is a fake gateway that answers each method with a result; those of
// nonce_list in turn.
func answering(t *testing.T, results map[string][]string) (url string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	return fakeGateway(t, func(r request) []string {
		*asked = append(*asked, r.Method+" "+string(r.Params))
		next := results[r.Method]
		if len(next) == 0 {
			t.Errorf("called %s with %s", r.Method, r.Params)
			return nil
		}
		results[r.Method] = next[1:]
		return []string{`{"jsonrpc":"2.0","id":ID,"result":` + next[0] + `}`}
	}), asked
}

const twoNodes = `"nodes":[` +
	`{"node":"a","url":"ws://a/ws","mode":"worker-queue","state":"live","incarnation":3,"shards":16,"startedAt":"2026-11-20T18:33:56.123Z","seenAt":"2026-11-20T18:40:00.000Z"},` +
	`{"node":"gateway-2","url":"ws://b/ws","state":"silent","incarnation":1,"shards":0,"startedAt":"2026-11-20T18:33:56.123Z","seenAt":"2026-11-20T18:34:00.000Z"}]`

func TestNodesPrintsATable(t *testing.T) {
	url, _ := answering(t, map[string][]string{wire.MethodInfo: {`{"node":"a","nodeCount":5,` + twoNodes + `}`}})
	want := strings.Join([]string{
		`NODE       STATE   SHARDS  MODE          STARTS  SINCE                     SEEN                      URL`,
		`a          live    16      worker-queue  3       2026-11-20T18:33:56.123Z  2026-11-20T18:40:00.000Z  ws://a/ws`,
		`gateway-2  silent  0       -             1       2026-11-20T18:33:56.123Z  2026-11-20T18:34:00.000Z  ws://b/ws`,
		`and 3 more`,
	}, "\n") + "\n"
	if o := runArgs(t, "nodes", "--url", url); o.code != exitOK || o.stdout != want || o.stderr != "" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
}

func TestNodesPrintsJSON(t *testing.T) {
	url, _ := answering(t, map[string][]string{wire.MethodInfo: {`{"node":"a","limits":{},"nodeCount":2,` + twoNodes + `}`}})
	if o := runArgs(t, "nodes", "--json", "--url", url); o.code != exitOK || o.stdout != `{"nodeCount":2,`+twoNodes+"}\n" {
		t.Errorf("exit %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
	}
}

// What a gateway says of the signer s.
const (
	busyStatus = `{"signer":"s","next":30,"floor":2,"held":3,"unknown":0,"released":1,"consumed":26,"lowestHeld":7,` +
		`"owner":"gateway-2","ownerUrl":"ws://b/ws","fencingToken":4,"version":90,"leaseUntil":"2026-11-20T18:34:10.000Z"}`
	idleStatus = `{"signer":"s","next":0,"floor":0,"held":0,"unknown":0,"released":0,"consumed":0,"fencingToken":0,"version":0}`
	heldRows   = `[{"nonce":7,"status":"HELD","attempt":2,"heldUntil":"2026-11-20T18:34:00.000Z","requestId":"payout-7","updatedAt":"2026-11-20T18:33:00.000Z"},` +
		`{"nonce":28,"status":"HELD","attempt":1,"heldUntil":"2026-11-20T18:35:00.000Z","updatedAt":"2026-11-20T18:33:30.000Z"}]`
	newestRows = `[{"nonce":28,"status":"HELD","attempt":1,"heldUntil":"2026-11-20T18:35:00.000Z","updatedAt":"2026-11-20T18:33:30.000Z"},` +
		`{"nonce":29,"status":"RELEASED","attempt":1,"reason":"gas too low","updatedAt":"2026-11-20T18:33:40.000Z"}]`
)

func TestSignerShowPrintsFiguresOwnerHoldsAndTheLastNonces(t *testing.T) {
	url, asked := answering(t, map[string][]string{
		wire.MethodStatus: {busyStatus},
		wire.MethodList:   {`{"allocations":` + heldRows + `,"nextFrom":29}`, `{"allocations":` + newestRows + `}`},
	})
	want := strings.Join([]string{
		`signer  s`,
		`next    30         floor     2  version   90`,
		`held    3          released  1  consumed  26                        unknown  0`,
		`owner   gateway-2  token     4  until     2026-11-20T18:34:10.000Z  ws://b/ws`,
		``,
		`open holds`,
		`NONCE  STATUS  ATTEMPT  UNTIL                     HOLDER  REQUEST   HASH OR REASON`,
		`7      HELD    2        2026-11-20T18:34:00.000Z  -       payout-7  -`,
		`28     HELD    1        2026-11-20T18:35:00.000Z  -       -         -`,
		`and 1 more`,
		``,
		`last nonces`,
		`NONCE  STATUS    CHAIN  ATTEMPT  CHANGED                   HOLDER  REQUEST  HASH OR REASON`,
		`29     RELEASED  -      1        2026-11-20T18:33:40.000Z  -       -        gas too low`,
		`28     HELD      -      1        2026-11-20T18:33:30.000Z  -       -        -`,
	}, "\n") + "\n"
	if o := runArgs(t, "signer", "show", "s", "--limit=2", "--url", url); o.code != exitOK || o.stdout != want || o.stderr != "" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
	wantAsked := `nonce_status {"signer":"s"}, nonce_list {"signer":"s","status":"HELD","from":7,"limit":2}, nonce_list {"signer":"s","from":28,"limit":2}`
	if got := strings.Join(*asked, ", "); got != wantAsked {
		t.Errorf("asked %s, want %s", got, wantAsked)
	}
}

func TestSignerShowOfASignerThatWasNeverUsedAsksOnceAndSaysSo(t *testing.T) {
	url, asked := answering(t, map[string][]string{wire.MethodStatus: {idleStatus, idleStatus}})
	want := strings.Join([]string{
		`signer  s`,
		`next    0       floor     0  version   0`,
		`held    0       released  0  consumed  0  unknown  0`,
		`owner   nobody  token     0`,
	}, "\n") + "\n"
	const says = "gateway: the signer s is not known: nothing of it was ever handed out; gateway signer list shows those that are known\n"
	if o := runArgs(t, "signer", "show", "s", "--url", url); o.code != exitFailure || o.stdout != want || o.stderr != says {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
	o := runArgs(t, "signer", "show", "s", "--json", "--url", url)
	if want := `{"known":false,"status":` + idleStatus + `,"holds":[],"last":[]}` + "\n"; o.code != exitFailure || o.stdout != want || o.stderr != says {
		t.Errorf("exit %d, stderr %q, stdout %s, want %s", o.code, o.stderr, o.stdout, want)
	}
	if len(*asked) != 2 {
		t.Errorf("asked %v", *asked)
	}
}

func TestSignerShowPrintsJSON(t *testing.T) {
	url, _ := answering(t, map[string][]string{
		wire.MethodStatus: {busyStatus},
		wire.MethodList:   {`{"allocations":` + heldRows + `}`, `{"allocations":[]}`},
	})
	o := runArgs(t, "signer", "show", "s", "--json", "--url", url)
	if want := `{"known":true,"status":` + busyStatus + `,"holds":` + heldRows + `,"last":[]}` + "\n"; o.code != exitOK || o.stdout != want {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
}

func TestARefusalOfALookIsPrintedAsItsJSON(t *testing.T) {
	url := fakeGateway(t, func(request) []string {
		return []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"invalid_params: signer: must be shorter","data":{"reason":"invalid_params"}}}`}
	})
	for _, args := range [][]string{
		{"nodes"}, {"signer", "show", "s"}, {"signer", "floor", "s", "5"}, {"signer", "release", "s", "5"}, {"signer", "consume", "s", "5", "--attempt=1"},
	} {
		o := runArgs(t, append(args, "--url", url)...)
		if o.code != exitFailure || !strings.HasPrefix(o.stderr, `{"code":-32602`) || o.stdout != "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, o.code, o.stdout, o.stderr)
		}
	}
}
