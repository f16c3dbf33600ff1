package rights_test

import (
	"strings"
	"testing"

	"noncegate/internal/access/rights"
	"noncegate/nonce"
)

// FuzzParse looks for files that panic, or whose errors are not one line.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("principals: {a: [{rights: [read], signers: ['*']}]}\nquotas: {a: {burst: 1}}"))
	f.Add([]byte("principals: &a {x: *a}"))
	f.Add([]byte("principals: {<<: {a: []}, ? [b] : []}"))
	f.Add([]byte("a: &a [x,x]\nprincipals: {a: *a}"))
	f.Add([]byte{0xff, 0xfe, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := rights.Parse(text)
		if (r == nil) == (err == nil) {
			t.Fatalf("got %v and %v", r, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		if r.May("nobody that is in a file ", rights.Read, "s") {
			t.Error("somebody who cannot be in a file has a right")
		}
	})
}

// FuzzParsePattern looks for patterns that panic, and that do not fit the signers they
// are written for.
func FuzzParsePattern(f *testing.F) {
	f.Add("eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B", "")
	f.Add("eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B*", ":1")
	f.Add("eip155:*", "1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("0x*", "AB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("0X*", "AB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("*", "x")
	f.Fuzz(func(t *testing.T, pattern, rest string) {
		text, isPrefix, err := rights.ParsePattern(pattern)
		if err != nil {
			return
		}
		spelled := strings.TrimSuffix(pattern, "*")
		if isPrefix {
			spelled += rest
		}
		signer, err := nonce.ParseSigner(spelled)
		if err != nil {
			return
		}
		if !isPrefix && signer != text {
			t.Errorf("pattern %q is %q, and the signer %q", pattern, text, signer)
		}
		if isPrefix && !strings.HasPrefix(signer, text) && !addressGrew(pattern, rest) {
			t.Errorf("pattern %q is %q, and the signer %q does not begin with it", pattern, text, signer)
		}
	})
}

// addressGrew reports whether what follows a pattern makes something else of the address
// at its end: with more digits or letters behind, it is none.
func addressGrew(pattern, rest string) bool {
	p := strings.TrimSuffix(pattern, "*")
	return len(p) >= 42 && rest != "" && strings.ContainsAny(rest[:1], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
}
