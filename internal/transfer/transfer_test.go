package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noncegate/internal/transfer"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
)

// parts is a store that has these, and is told others.
type parts struct {
	now  int64
	has  []nonce.Kept
	told []nonce.Kept
}

func (p *parts) Export(_ context.Context, _ bool, each func(time.Time, *nonce.Kept) error) error {
	for i := range p.has {
		if err := each(time.UnixMilli(p.now), &p.has[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *parts) Import(_ context.Context, next func() (*nonce.Kept, error)) error {
	for {
		part, err := next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			p.told = nil
			return err
		}
		p.told = append(p.told, *part)
	}
}

// lines ends a file as an export does.
func lines(end string, text ...string) string {
	all := strings.Join(text, "\n") + "\n"
	sum := sha256.Sum256([]byte(all))
	return all + fmt.Sprintf(`{"end":{%s,"sha256":%q}}`, end, hex.EncodeToString(sum[:])) + "\n"
}

const (
	first = `{"noncegateExport":{"version":1,"store":"sqlite","at":"2026-01-02T03:04:05.678Z","history":true}}`
	one   = `"signers":1,"open":0,"history":0,"requests":0,"sent":0`
)

func TestWhatNoGatewayWritesIsRefusedByLineAndField(t *testing.T) {
	signer := func(fields string) string { return lines(one, first, `{"signer":{"name":"a","version":1,`+fields+`}}`) }
	live := func(fields string) string { return signer(`"next":9,"floor":0,"live":[{` + fields + `}]`) }
	more := func(rows string) string {
		return lines(one, first, `{"signer":{"name":"a","version":1,"next":9,"floor":0}}`, `{"more":{"of":"a",`+rows+`}}`)
	}
	for _, c := range []struct{ file, want string }{
		{"", "the file has no last line"},
		{first + "\n", "the file has no last line"},
		{signer(`"next":1,"floor":0`) + "{}\n", "line 4: there is more behind the last line"},
		{strings.Replace(signer(`"next":7,"floor":0`), `"next":7`, `"next":8`, 1), "line 3: what the last line counts is not what the file has"},
		{lines(`"signers":2,"open":0,"history":0,"requests":0,"sent":0`, first, `{"signer":{"name":"a","version":1,"next":1,"floor":0}}`), "line 3: what the last line counts"},
		{"nonsense\n", "line 1: invalid character"},
		{`{"signer":{}}` + "\n", "line 1: it is no export"},
		{strings.Replace(first, `"version":1`, `"version":2`, 1) + "\n", "line 1: the export is of version 2, and this gateway knows 1"},
		{lines(one, first, `{"signr":{}}`), `line 2: json: unknown field "signr"`},
		{lines(one, first, `{}`), "line 2: the line has nothing that is known"},
		{lines(one, first, `{"principals":{"0000000000000001":"b"}}`), `line 2: principals["0000000000000001"]: is not that of the name`},
		{lines(one, first, `{"signer":{"name":"b","version":1,"next":0,"floor":0}}`, `{"signer":{"name":"a","version":1,"next":0,"floor":0}}`), "line 3: signer a comes after b"},
		{lines(one, first, `{"signer":{"name":"a b","version":1,"next":0,"floor":0}}`), "line 2: signer a b: name: must be visible ASCII"},
		{lines(one, first, `{"signer":{"name":"a","version":0,"next":0,"floor":0}}`), "signer a: version: must be at least 1"},
		{signer(`"next":1,"floor":2`), "signer a: next: must be at least 2"},
		{signer(`"next":1,"floor":0,"watch":{"trouble":"flood"}`), "signer a: watch: trouble: must be gap, dropped or stuck"},
		{signer(`"next":1,"floor":0,"watch":{"trouble":"gap"}`), "signer a: watch: since: must be there with trouble"},
		{live(`"nonce":9,"status":"RELEASED","attempt":1`), "live[0].nonce: must be above the one before, and below next"},
		{live(`"nonce":1,"status":"HELD","attempt":1`), "live[0].status: must be HELD, with heldUntil, or RELEASED, without"},
		{live(`"nonce":1,"status":"RELEASED","attempt":0`), "live[0].attempt: must be at least 1"},
		{live(`"nonce":1,"status":"RELEASED","attempt":1,"holder":"x"`), "live[0].holder: must be 16"},
		{live(`"nonce":1,"status":"RELEASED","attempt":1,"reason":"` + strings.Repeat("x", 257) + `"`), "live[0].reason: must be at most 256"},
		{live(`"nonce":1,"status":"RELEASED","attempt":1,"txHashes":["0x1"]`), "live[0].txHashes[0]: must be 0x and 64"},
		{live(`"nonce":1,"status":"RELEASED","attempt":1,"reissued":{"attempt":1,"reason":"unseen"}`), "live[0].reissued.attempt: must be"},
		{live(`"nonce":1,"status":"RELEASED","attempt":2,"reissued":{"attempt":1,"reason":"x"}`), "live[0].reissued.reason: must be"},
		{more(`"history":[{"nonce":9,"attempt":1,"at":"2026-01-02T03:04:05Z"}]`), "line 3: history[0].nonce: must be at least 0 and below next"},
		{more(`"requests":[{"requestId":"r","hash":"00","nonces":[],"at":"2026-01-02T03:04:05Z"}]`), "requests[0].hash: must be 32 hexadecimal digits"},
		{more(`"requests":[{"requestId":"r","hash":"` + strings.Repeat("0", 32) + `","nonces":[[9,1]],"at":"2026-01-02T03:04:05Z"}]`), "requests[0].nonces[0]: must be"},
		{more(`"sent":[{"nonce":1,"txHash":"0x` + strings.Repeat("1", 64) + `","payment":"` + strings.Repeat("0", 32) + `","state":"open","lookAt":"2026-01-02T03:04:05Z"}]`), "sent[0].raw: must be"},
		{lines(one, first, `{"more":{"of":"b"}}`), `line 2: of: must be the signer of the lines before, ""`},
	} {
		to := new(parts)
		if _, err := transfer.Import(t.Context(), strings.NewReader(c.file), to); err == nil || !strings.Contains(err.Error(), c.want) || to.told != nil {
			t.Errorf("got %v (%d parts), want %s, of\n%s", err, len(to.told), c.want, c.file)
		}
	}
}

// What a lost log of the performance engine may have handed out has higher attempts than the rows tell.
func TestASignerThatOutlivedLossesOfRedisIsMovedWithHigherAttempts(t *testing.T) {
	at := func(s nonce.Signer, sh lease.Engine) *parts {
		signer := &nonce.KeptSigner{Signer: s, Shard: lease.Shard{Engine: sh}}
		past := []nonce.Past{{Nonce: 0, Attempt: 1}, {Nonce: 1, Attempt: 3 << 20}}
		return &parts{now: 1000, has: []nonce.Kept{{Name: "a", Signer: signer}, {Name: "a", History: past}}}
	}
	export := func(p *parts) (*parts, error) {
		var file bytes.Buffer
		if _, err := transfer.Export(t.Context(), p, "postgres", true, &file); err != nil {
			return nil, err
		}
		to := new(parts)
		_, err := transfer.Import(t.Context(), &file, to)
		return to, err
	}
	got, err := export(at(nonce.Signer{Version: 5, Next: 9, Ceiling: 9, Epoch: 2}, lease.Engine{Epoch: 2, DoubtUntil: 900}))
	if err != nil {
		t.Fatal(err)
	}
	if s := got.told[0].Signer; s.Version != 5+4<<20/4096+1 || s.Ceiling != 0 || s.Epoch != 0 {
		t.Errorf("got %+v", s.Signer)
	}
	if past := got.told[1].History; past[0].Attempt != 2<<20 || past[1].Attempt != 3<<20 {
		t.Errorf("got %+v", past)
	}
	for _, c := range []struct {
		signer nonce.Signer
		shard  lease.Engine
		want   string
	}{
		{nonce.Signer{Version: 5, Next: 9, Ceiling: 12, Epoch: 1}, lease.Engine{Epoch: 2}, "signer a: nonce 9 is in doubt since Redis was lost"},
		{nonce.Signer{Version: 5, Next: 9, Ceiling: 9, Epoch: 2}, lease.Engine{Epoch: 2, DoubtUntil: 1500, GrantUntil: 1400}, "may be marked until 1970-01-01T00:00:01Z"},
	} {
		if _, err := export(at(c.signer, c.shard)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestAFileIsReadBackToTheBit(t *testing.T) {
	open := func() *sqlite.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "db"), 2, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	hash := "0x" + strings.Repeat("1a", 32)
	file := lines(`"signers":2,"open":2,"history":1,"requests":1,"sent":1`, first,
		`{"principals":{"`+nonce.PrincipalOf("payouts").String()+`":"payouts"}}`,
		`{"signer":{"name":"a","version":7,"next":9,"floor":1,"live":[{"nonce":3,"status":"HELD","attempt":2,"heldUntil":"2030-01-02T03:04:05.678Z",`+
			`"holder":"00000000000000ff","reason":"unknown","txHashes":["`+hash+`","`+hash+`"],"reissued":{"attempt":1,"reason":"repair","txHash":"`+hash+`"}},`+
			`{"nonce":5,"status":"RELEASED","attempt":1,"reason":"declined \u003cby\u003e policy"}],"watch":{"trouble":"stuck","nonce":3,"since":"2026-01-02T03:04:05.678Z"}}}`,
		`{"more":{"of":"a","history":[{"nonce":2,"attempt":1,"reason":"mined","at":"2026-01-02T03:04:05.678Z"}]}}`,
		`{"more":{"of":"a","requests":[{"requestId":"r","hash":"000102030405060708090a0b0c0d0e0f","nonces":[[2,1]],"at":"2026-01-02T03:04:05.678Z"}]}}`,
		`{"more":{"of":"a","sent":[{"nonce":3,"txHash":"`+hash+`","payment":"000102030405060708090a0b0c0d0e0f","state":"open","raw":"02f8","lookAt":"2026-01-02T03:04:05.678Z"}]}}`,
		`{"signer":{"name":"b","version":1,"next":0,"floor":0,"watch":{"clear":true}}}`)
	s := open()
	if _, err := transfer.Import(t.Context(), strings.NewReader(file), s); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if _, err := transfer.Export(t.Context(), s, "sqlite", true, &again); err != nil {
		t.Fatal(err)
	}
	body := func(text string) string {
		_, rest, _ := strings.Cut(text, "\n")
		return rest[:strings.LastIndex(rest, `,"sha256"`)]
	} // without the time of export
	if body(again.String()) != body(file) {
		t.Errorf("got\n%s\nwant\n%s", again.String(), file)
	}
}
