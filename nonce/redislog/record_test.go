package redislog

import (
	"bytes"
	"reflect"
	"testing"

	"noncegate/nonce"
)

var full = &nonce.LogRecord{Shard: 3, Token: 7, Seq: 12, Changes: []nonce.LogChange{
	{Name: "a", Version: 1, Next: 2, Put: []nonce.Entry{
		{Nonce: 0, Attempt: 1, Status: nonce.Held, Until: 5, Holder: 9},
		{Nonce: 1, Attempt: 3, Status: nonce.Released, Note: &nonce.Note{Reason: "why", Earlier: &nonce.Earlier{Attempt: 2, Reason: nonce.ReasonUnseen}}},
	}},
	{
		Name: "eip155:1:0xab", Version: 1 << 40, Next: 1 << 50, Floor: 7, Gone: []int64{4, 1 << 45},
		History: []nonce.Past{
			{Nonce: 4, Attempt: 2, Holder: 1 << 63, Again: true, Note: nonce.Note{Reason: "mined", TxHash: nonce.TxHash{1}, Replaced: nonce.TxHashes("").Append(nonce.TxHash{2})}},
			{Nonce: 1 << 45, Attempt: 1},
		},
		Requests: []nonce.Remembered{{ID: "r", Hash: [16]byte{4}, Nonces: []int64{1, 2}, Attempts: []int64{1, 8}}},
	},
}}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	got, err := parseRecord(appendRecord(nil, full))
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestARecordThatWasDamagedIsRefused(t *testing.T) {
	b := appendRecord(nil, full)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if got, err := parseRecord(bad); err == nil {
			t.Fatalf("byte %d: got %+v", i, got)
		}
		if _, err := parseRecord(b[:i]); err == nil {
			t.Fatalf("%d bytes are read", i)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, full))
	f.Add(appendRecord(nil, &nonce.LogRecord{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		again, err := parseRecord(appendRecord(nil, r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v is read as %+v, %v", r, again, err)
		}
	})
}
