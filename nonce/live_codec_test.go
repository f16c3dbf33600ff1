package nonce

import (
	"bytes"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

func hash(n byte) (h TxHash) { h[31] = n; return h }

var liveExamples = map[string][]Entry{
	"nothing":  nil,
	"one hold": {{Nonce: 7, Attempt: 1, Status: Held, Until: 1_790_000_000_000}},
	"two holds of one client": {
		{Nonce: 7, Attempt: 1, Status: Held, Until: 1_790_000_000_000, Holder: 9},
		{Nonce: 8, Attempt: 1, Status: Held, Until: 1_790_000_000_000, Holder: 9},
	},
	"everything": {
		{Nonce: 0, Attempt: 3, Status: Released, Holder: 5},
		{Nonce: 1, Attempt: 1, Status: Released, Note: &Note{Reason: "because"}},
		{Nonce: 5, Attempt: 2, Status: Held, Until: 1_790_000_000_000, Holder: 5, Note: &Note{Reason: ReasonRecordFirst}},
		{Nonce: 6, Attempt: 1 << 40, Status: Held, Until: 1_780_000_000_000, Holder: 5, Note: &Note{Reason: ReasonRepair, TxHash: hash(1), Replaced: TxHashes("").Append(hash(2)).Append(hash(3))}},
		{Nonce: 1<<63 - 2, Attempt: 1, Status: Held, Until: 1, Note: &Note{TxHash: hash(4)}},
	},
	"earlier holds": {
		{Nonce: 1, Attempt: 1, Status: Released, Note: &Note{Reason: ReasonUnseen, Earlier: &Earlier{Attempt: 1, Reason: ReasonUnseen}}},
		{Nonce: 2, Attempt: 3, Status: Held, Until: 5, Holder: 5, Note: &Note{Earlier: &Earlier{Attempt: 1, Reason: ReasonRepair, TxHash: hash(5)}}},
		{Nonce: 3, Attempt: 2, Status: Held, Until: 5, Note: &Note{Reason: "why", TxHash: hash(6), Earlier: &Earlier{Attempt: 1, Reason: ReasonUnseen}}},
	},
	"the longest reason": {{Nonce: 1, Attempt: 1, Status: Released, Note: &Note{Reason: strings.Repeat("é", MaxReasonBytes/2)}}},
}

func TestALiveStateIsReadAsItWasWritten(t *testing.T) {
	for name, live := range liveExamples {
		t.Run(name, func(t *testing.T) {
			b := AppendLive([]byte("before"), live)[len("before"):]
			got, err := ParseLive(b, 1<<63-1)
			if err != nil || !reflect.DeepEqual(got, live) {
				t.Errorf("got %+v, %v, want %+v", got, err, live)
			}
			if len(live) == 0 {
				return
			}
			for i := range b {
				for bit := range 8 {
					damaged := bytes.Clone(b)
					damaged[i] ^= 1 << bit
					if got, err := ParseLive(damaged, 1<<63-1); !errors.Is(err, ErrLive) {
						t.Fatalf("with bit %d of byte %d changed: %+v, %v", bit, i, got, err)
					}
				}
				if _, err := ParseLive(b[:i], 1<<63-1); i > 0 && !errors.Is(err, ErrLive) {
					t.Errorf("the first %d bytes are taken", i)
				}
			}
			if _, err := ParseLive(b, live[len(live)-1].Nonce); !errors.Is(err, ErrLive) {
				t.Errorf("an entry at the cursor is taken: %v", err)
			}
		})
	}
}

func TestAnOrdinaryHoldTakesFewBytes(t *testing.T) {
	live := make([]Entry, 256)
	for i := range live {
		live[i] = Entry{Nonce: 1_000_000 + int64(i), Attempt: 1, Status: Held, Until: 1_790_000_000_000 + 37*int64(i), Holder: 9}
	}
	if got := len(AppendLive(nil, live)) / len(live); got > 5 {
		t.Errorf("a hold takes %d bytes", got)
	}
	plain := len(AppendLive(nil, live))
	live[0].Attempt, live[1].Attempt = 2, 2
	live[1].Note = &Note{Earlier: &Earlier{Attempt: 1, Reason: ReasonUnseen}}
	if got := len(AppendLive(nil, live)) - plain - 2; got != 2 { // the attempts take one each
		t.Errorf("what is known of an earlier hold takes %d bytes", got)
	}
}

// FuzzParseLive: what is read has one form, the one that it was read from.
func FuzzParseLive(f *testing.F) {
	for _, live := range liveExamples {
		if b := AppendLive(nil, live); len(b) > 0 {
			f.Add(b[1 : len(b)-crc32.Size])
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte{liveVersion}, body...)
		sum := crc32.Checksum(b, castagnoli)
		b = append(b, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		live, err := ParseLive(b, 1<<63-1)
		if err != nil {
			if !errors.Is(err, ErrLive) {
				t.Fatal(err)
			}
			return
		}
		if again := AppendLive(nil, live); !bytes.Equal(again, b) {
			t.Fatalf("%x is read as %+v, which is written as %x", b, live, again)
		}
		for i := range live {
			was := live[i].Earlier()
			if i > 0 && live[i].Nonce <= live[i-1].Nonce || live[i].Attempt < 1 || was != nil && (was.Attempt < 1 || was.Attempt > live[i].Attempt) {
				t.Fatalf("read %+v", live)
			}
		}
	})
}
