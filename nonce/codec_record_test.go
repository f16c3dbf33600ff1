package nonce

import (
	"bytes"
	"reflect"
	"testing"
)

var full = &LogRecord{Shard: 3, Token: 7, Seq: 12, Changes: []LogChange{
	{Name: "a", Version: 1, Next: 2, Put: []Entry{
		{Nonce: 0, Attempt: 1, Status: Held, Until: 5, Holder: 9},
		{Nonce: 1, Attempt: 3, Status: Released, Note: &Note{Reason: "why", Earlier: &Earlier{Attempt: 2, Reason: ReasonUnseen}}},
	}},
	{
		Name: "eip155:1:0xab", Version: 1 << 40, Next: 1 << 50, Floor: 7, Gone: []int64{4, 1 << 45},
		History: []Past{
			{Nonce: 4, Attempt: 2, Holder: 1 << 63, Again: true,
				Note: Note{Reason: "mined", TxHash: TxHash{1}, Replaced: TxHashes("").Append(TxHash{2})}},
			{Nonce: 1 << 45, Attempt: 1},
		},
		Requests: []Remembered{{ID: "r", Hash: [16]byte{4}, Nonces: []int64{1, 2}, Attempts: []int64{1, 8}}},
	},
}}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	got, err := ReadRecord(AppendRecord(nil, full))
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestARecordThatWasDamagedIsRefused(t *testing.T) {
	b := AppendRecord(nil, full)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if got, err := ReadRecord(bad); err == nil {
			t.Fatalf("byte %d: got %+v", i, got)
		}
		if _, err := ReadRecord(b[:i]); err == nil {
			t.Fatalf("%d bytes are read", i)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(AppendRecord(nil, full))
	f.Add(AppendRecord(nil, &LogRecord{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ReadRecord(b)
		if err != nil {
			return
		}
		again, err := ReadRecord(AppendRecord(nil, r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v is read as %+v, %v", r, again, err)
		}
	})
}
