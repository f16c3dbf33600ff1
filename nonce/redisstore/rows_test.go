package redisstore

import (
	"testing"
	"time"

	"noncegate/nonce"
)

func TestARowIsReadAsItWasWritten(t *testing.T) {
	until := time.UnixMicro(1_900_000_000_123_456)
	hash := nonce.TxHash{0: '-', 1: ' ', 31: 9}
	for text, want := range map[string]nonce.Row{
		heldRow(3, 5, 0, until):                                {Status: nonce.Held, Attempt: 3, Token: 5, HeldUntil: until},
		releasedRow(3, 0, 0, ""):                               {Status: nonce.Released, Attempt: 3},
		releasedRow(3, 5, 0, "two words "):                     {Status: nonce.Released, Attempt: 3, Token: 5, Reason: "two words "},
		"C3" + consumedRow(5, 17, 0, hash, ""):                 {Status: nonce.Consumed, Attempt: 3, Token: 5, TxHash: hash},
		"C3" + consumedRow(5, 17, 0, hash, "below_floor"):      {Status: nonce.Consumed, Attempt: 3, Token: 5, TxHash: hash, Reason: "below_floor"},
		"C3" + consumedRow(5, 17, 0, nonce.TxHash{}, "h ello"): {Status: nonce.Consumed, Attempt: 3, Token: 5, Reason: "h ello"},
		heldRow(3, 5, 10, until):                               {Status: nonce.Held, Attempt: 3, Token: 5, Holder: 10, HeldUntil: until},
		releasedRow(3, 5, 1<<63, " @1 "):                       {Status: nonce.Released, Attempt: 3, Token: 5, Holder: 1 << 63, Reason: " @1 "},
		"C3" + consumedRow(5, 17, 255, hash, "why"):            {Status: nonce.Consumed, Attempt: 3, Token: 5, Holder: 255, TxHash: hash, Reason: "why"},
	} {
		want.Nonce = 12
		if got, err := parseRow("12", text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestWhatIsNoRowIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "H", "X1 1 1", "?1 1 1", "H1", "H1 1", "H1 1 ", "H1 1 x", "H 1 1", "H-1 1 1", "H01 1 1", "H1 +1 1", "R1", "R1 1",
		"C1 1", "C1 1 1", "C1 1 1 ", "C1 1 1 x", "C1 1 1 hshort", "H1 1 9223372036854775808",
		"H1 1@ 1", "H1 1@0 1", "H1 1@01 1", "H1 1@A 1", "H1 1@-1 1", "H1 1@1@1 1", "H1 1@10000000000000000 1", "H1 @1 1", "R1 1@x why",
	} {
		if row, err := parseRow("12", text); err == nil {
			t.Errorf("%q is taken for %+v", text, row)
		}
	}
	for _, n := range []string{"", "-1", "01", "x", "9223372036854775808"} {
		if row, err := parseRow(n, "R1 1 "); err == nil {
			t.Errorf("nonce %q is taken for %+v", n, row)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(requestValue(&nonce.Request{Nonces: []int64{1, 2}, Attempts: []int64{3, 4}}))
	f.Add(requestValue(&nonce.Request{}))
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseRequest("id", s)
		if err != nil {
			return
		}
		if got := requestValue(&r); got != s {
			t.Errorf("%q is read as %+v, which is written %q", s, r, got)
		}
	})
}
