package nonce_test

import (
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"noncegate/nonce"
)

func TestASignerOrRequestIdIsVisibleASCII(t *testing.T) {
	for _, in := range []string{"", " ", "a b", "a\n", "a\x7f", "é", "a\x00", strings.Repeat("S", 129), "\xff"} {
		if got, err := nonce.ParseSigner(in); err == nil {
			t.Errorf("signer %q: got %q", in, got)
		}
		if _, err := nonce.ParseRequestID(in); err == nil {
			t.Errorf("request id %q was taken", in)
		}
	}
	if got, err := nonce.ParseRequestID(checksummed); err != nil || got != checksummed {
		t.Errorf("a request id is not normalised: got %q, %v", got, err)
	}
}

func TestATxHashIs64HexadecimalDigits(t *testing.T) {
	digits := strings.Repeat("0aF9", 16)
	for _, in := range []string{"0x" + digits, "0X" + digits} {
		if h, err := nonce.ParseTxHash(in); err != nil || h.String() != "0x"+strings.ToLower(digits) {
			t.Errorf("%s: got %v, %v", in, h, err)
		}
	}
	for _, in := range []string{"", "0x", digits, "0x" + digits[1:], "0x" + digits + "0", "1x" + digits,
		"0x" + digits[:63] + "g", "0x" + strings.Repeat("0", 64)} {
		if h, err := nonce.ParseTxHash(in); err == nil || h != (nonce.TxHash{}) {
			t.Errorf("%s: got %v, %v", in, h, err)
		}
	}
	if got := (nonce.TxHash{}).String(); got != "" {
		t.Errorf("the zero hash: got %q", got)
	}
}

func TestAReasonIsShortTextWithoutControlCharacters(t *testing.T) {
	for _, in := range []string{"", "gas price too low", "zu spät: 日本", strings.Repeat("r", 256)} {
		if got, err := nonce.ParseReason(in); err != nil || got != in {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"a\nb", "\x00", "\x7f", "\u0085", "\xff", strings.Repeat("r", 257)} {
		if got, err := nonce.ParseReason(in); err == nil || got != "" {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
}

func FuzzParseTxHash(f *testing.F) {
	for _, s := range []string{"0x" + strings.Repeat("aF", 32), "0X" + strings.Repeat("0", 64), "0x", "0x" + strings.Repeat("z", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		h, err := nonce.ParseTxHash(in)
		if (err != nil) != (h == nonce.TxHash{}) {
			t.Fatalf("got %v, %v", h, err)
		}
		if err == nil && h.String() != strings.ToLower(in) {
			t.Fatalf("%q became %v", in, h)
		}
	})
}

func FuzzParseReason(f *testing.F) {
	for _, s := range []string{"", "nonce too low", "zu spät", "a\nb", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := nonce.ParseReason(in)
		good := len(in) <= nonce.MaxReasonBytes && utf8.ValidString(in) && !strings.ContainsFunc(in, unicode.IsControl)
		if good != (err == nil) || good && got != in {
			t.Fatalf("%q became %q, %v", in, got, err)
		}
	})
}

func FuzzParsePrincipal(f *testing.F) {
	for _, s := range []string{"", "0000000000000000", "00000000000000aB", "00000000000000ab", "8000000000000000", "+00000000000000a", "0x0000000000000a", "10000000000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := nonce.ParsePrincipal(in)
		if (err != nil) != (p == 0) || err == nil && p.String() != in {
			t.Fatalf("%q became %v, %v", in, p, err)
		}
	})
}

func TestAPrincipalIsReadAsItIsWritten(t *testing.T) {
	for _, p := range []nonce.Principal{1, 1 << 63, math.MaxUint64, nonce.PrincipalOf("relayer-1")} {
		if got, err := nonce.ParsePrincipal(p.String()); err != nil || got != p {
			t.Errorf("%d is written %s and read %d, %v", uint64(p), p, got, err)
		}
	}
	if a, b := nonce.PrincipalOf("a"), nonce.PrincipalOf("b"); a == b || nonce.PrincipalOf("") != 0 {
		t.Errorf("principals %v, %v and %v", a, b, nonce.PrincipalOf(""))
	}
}
