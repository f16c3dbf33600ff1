package jsonrpc

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"noncegate/test/lab/expect"
)

func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":7,"result":"0x1"}`, `[{"id":7,"result":null},{"id":8,"error":{"code":-32000,"message":"no"}}]`,
		`[{"id":7,"error":{"code":-32600,"message":"batch too large"}}]`, `{"id":null,"error":"x"}`, "[]", "", "[{},{}]",
	} {
		f.Add([]byte(seed), byte(2))
	}
	e, err := ParseEndpoint("http://node")
	expect.Must(f, err)
	f.Fuzz(func(t *testing.T, data []byte, n byte) {
		var calls []*Call
		for range int(n%4) + 1 {
			calls = append(calls, NewCall("eth_call"))
		}
		e.read(calls, 7, data)
		for i, c := range calls {
			outcomes := 0
			if c.Result != nil {
				outcomes++
				if !json.Valid(c.Result) && !strings.Contains(string(data), string(c.Result)) {
					t.Errorf("call %d: the result %q is nowhere in %q", i, c.Result, data)
				}
			}
			if c.Err != nil {
				outcomes++
			}
			if c.Fail != nil {
				outcomes++
			}
			if outcomes != 1 {
				t.Errorf("call %d of %d has %d outcomes after %q", i, len(calls), outcomes, data)
			}
		}
	})
}

func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{
		"http://node:8545", "wss://user:secretpassword@node/v3/key?a=b", "http://a:b:c@d", "ws://[::1]:1", "://",
		"http://user:secretpassword@/",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := ParseEndpoint(raw)
		if err != nil {
			if len(err.Error()) > 200 {
				t.Errorf("the error %q may show the address", err)
			}
			return
		}
		u, err := url.Parse(raw)
		expect.Must(t, err)
		password, _ := u.User.Password()
		if len(password) > 8 && !strings.Contains(u.Host, password) && strings.Contains(e.String()+e.clean("no "+password+" here"), password) {
			t.Errorf("%q shows the password %q", e, password)
		}
		if strings.Contains(e.target, "@") && u.User != nil && !strings.Contains(u.Host+u.Path+u.RawQuery, "@") {
			t.Errorf("the target %q has credentials", e.target)
		}
	})
}
