package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// FuzzParseRow: whatever is taken for a row is exactly what would be written for it.
func FuzzParseRow(f *testing.F) {
	until := time.UnixMicro(1_900_000_000_123_456)
	f.Add("12", heldRow(3, 5, 10, until))
	f.Add("0", releasedRow(3, 5, 1<<63, " @1 "))
	f.Add("9223372036854775807", "C3"+consumedRow(5, 17, 255, nonce.TxHash{0: '-', 1: ' ', 31: 9}, "below_floor"))
	f.Add("1", "C3"+consumedRow(5, 17, 0, nonce.TxHash{}, ""))
	f.Fuzz(func(t *testing.T, number, text string) {
		row, err := parseRow(number, text)
		if err != nil {
			return
		}
		var again string
		switch row.Status {
		case nonce.Held:
			again = heldRow(row.Attempt, row.Token, row.Holder, row.HeldUntil)
		case nonce.Released:
			again = releasedRow(row.Attempt, row.Token, row.Holder, row.Reason)
		default: // the version is not part of the row
			_, rest, _ := strings.Cut(text, " ")
			_, rest, _ = strings.Cut(rest, " ")
			version, _, _ := strings.Cut(rest, " ")
			n, _ := parseNum(version)
			again = "C" + num(row.Attempt) + consumedRow(row.Token, n, row.Holder, row.TxHash, row.Reason)
			if row.TxHash == (nonce.TxHash{}) && strings.HasPrefix(rest, version+" h") {
				return // a hash of zeros, which nobody writes
			}
		}
		if num(row.Nonce) != number || again != text {
			t.Errorf("%q %q is read as %+v, which is written %q", number, text, row, again)
		}
	})
}

// FuzzParseState: whatever is taken for a state is exactly seven numbers.
func FuzzParseState(f *testing.F) {
	f.Add("1 2 3 4 5 6 7")
	f.Add("1 2 3 4 5 6 9223372036854775807")
	f.Add("1 2 3 4 5 6 07")
	f.Fuzz(func(t *testing.T, s string) {
		st, err := parseState(s)
		if err != nil {
			return
		}
		if got := belief(st.id, st.token, st.version) + num(st.held) + " " + num(st.released) + " " + num(st.next) + " " + num(st.floor); got != s {
			t.Errorf("%q is read as %+v, which is written %q", s, st, got)
		}
	})
}

// FuzzReply: no answer of a script or of INFO, and no id of an entry, makes what reads
// it panic, and no answer counts as done that does not say so.
func FuzzReply(f *testing.F) {
	f.Add(int64(0), "why", "# Server\r\nrun_id:ab\r\nmaster_replid:cd\r\n", "1700000000000-0")
	f.Add(int64(256), "", "", "0-1")
	f.Add(int64(9), "", "", "x-18446744073709551615")
	f.Add(int64(-1), "", "\nrun_id:", "-")
	f.Fuzz(func(t *testing.T, code int64, why, info, entry string) {
		for _, reply := range []any{code, why, nil, []any{}, []any{code, why}, []any{why, code}, []any{code, []any{}}} {
			a := answer{fate: answered, reply: reply}
			verdict, err := a.verdict(nonce.Identity{}, "s")
			if (verdict == nonce.FastDone) != (err == nil) || verdict == nonce.FastDone && code != int64(nonce.FastDone) {
				t.Errorf("%v is %v, %v", reply, verdict, err)
			}
		}
		if id, err := identity(redis.NewStringResult(info, nil)); err == nil && (id.RunID == "" || id.ReplID == "") {
			t.Errorf("%q is identity %+v", info, id)
		}
		if next, err := after(entry); err == nil && next == entry {
			t.Errorf("after %q comes itself", entry)
		}
	})
}
