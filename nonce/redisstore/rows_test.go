package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// hashes are n of them that are hard to read.
func hashes(n int) (all nonce.TxHashes) {
	for i := range n {
		all = all.Append(nonce.TxHash{0: '-', 1: ' ', 2: '#', 30: 0, 31: byte(i + 1)})
	}
	return all
}

var until = time.UnixMicro(1_900_000_000_123_456)

// everyRow is rows of every form.
func everyRow() (rows []nonce.Row) {
	for _, status := range []nonce.Status{nonce.Held, nonce.Released, nonce.Consumed} {
		for _, holder := range []nonce.Principal{0, 10, 1 << 63} {
			for _, reason := range []string{"", "two words ", " @1 ", "-h ello", nonce.ReasonUnknown} {
				for n := range nonce.MaxHashes + 1 {
					row := nonce.Row{Nonce: 12, Status: status, Attempt: 3, Token: 5, Holder: holder, Reason: reason}
					if n > 0 {
						row.TxHash, row.Replaced = hashes(n).At(n-1), hashes(n-1)
					}
					if status == nonce.Held {
						row.HeldUntil = until
					}
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

func TestARowIsReadAsItWasWritten(t *testing.T) {
	for _, want := range everyRow() {
		text := rowText(&want, 17)
		if got, err := parseRow("12", text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestARowOfAnOlderVersionIsReadAndWrittenAsItWas: the rows of signers that were in Redis
// when the program was replaced by this one.
func TestARowOfAnOlderVersionIsReadAndWrittenAsItWas(t *testing.T) {
	hash := nonce.TxHash{0: '-', 1: ' ', 31: 9}
	for text, want := range map[string]nonce.Row{
		"H3 5 1900000000123456":                  {Status: nonce.Held, Attempt: 3, Token: 5, HeldUntil: until},
		"H3 5@a 1900000000123456":                {Status: nonce.Held, Attempt: 3, Token: 5, Holder: 10, HeldUntil: until},
		"R3 0 ":                                  {Status: nonce.Released, Attempt: 3},
		"R3 5@8000000000000000  @1 ":             {Status: nonce.Released, Attempt: 3, Token: 5, Holder: 1 << 63, Reason: " @1 "},
		"R3 5 # h":                               {Status: nonce.Released, Attempt: 3, Token: 5, Reason: "# h"},
		"C3 5 17 h" + string(hash[:]):            {Status: nonce.Consumed, Attempt: 3, Token: 5, TxHash: hash},
		"C3 5@ff 17 h" + string(hash[:]) + "why": {Status: nonce.Consumed, Attempt: 3, Token: 5, Holder: 255, TxHash: hash, Reason: "why"},
		"C3 5 17 -h ello":                        {Status: nonce.Consumed, Attempt: 3, Token: 5, Reason: "h ello"},
	} {
		want.Nonce = 12
		if got, err := parseRow("12", text); err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
		if again := rowText(&want, 17); again != text {
			t.Errorf("%+v is written %q, was %q", want, again, text)
		}
	}
}

func TestWhatIsNoRowIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "H", "X1 1 1", "?1 1 1", "H1", "H1 1", "H1 1 ", "H1 1 x", "H 1 1", "H-1 1 1", "H01 1 1", "H1 +1 1", "R1", "R1 1",
		"C1 1", "C1 1 1", "C1 1 1 ", "C1 1 1 x", "C1 1 1 hshort", "H1 1 9223372036854775808",
		"H1 1@ 1", "H1 1@0 1", "H1 1@01 1", "H1 1@A 1", "H1 1@-1 1", "H1 1@1@1 1", "H1 1@10000000000000000 1", "H1 @1 1", "R1 1@x why",
		"H1 1 1 ", "H1 1 1 -", "H1 1 1 hshort", "H1 1 1 i" + strings.Repeat("x", 63), "H1 1 1 x", "H1 1# 1 -why", "C1 1# 1 -why", "C1 1 1 g",
		"R1 1# ", "R1 1# -why", "R1 1# hshort", "R1 1## h" + strings.Repeat("x", 32), "C1 1 1 i" + strings.Repeat("x", 63), "C1 1 1 \xff", "C1 1 1 h" + strings.Repeat("\x00", 32),
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
	for _, row := range everyRow() {
		f.Add("12", rowText(&row, 17))
	}
	f.Add("0", "R3 5@8000000000000000  @1 ")
	f.Add("9223372036854775807", "C3 5@ff 17 -below_floor")
	f.Add("1", "H3 5 1900000000123456")
	f.Fuzz(func(t *testing.T, number, text string) {
		row, err := parseRow(number, text)
		if err != nil {
			return
		}
		var version int64 // it is not part of the row
		if row.Status == nonce.Consumed {
			version, _ = parseNum(strings.SplitN(text, " ", 4)[2])
		}
		if again := rowText(&row, version); num(row.Nonce) != number || again != text {
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
