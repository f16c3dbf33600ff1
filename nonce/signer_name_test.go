package nonce_test

import (
	"strings"
	"testing"

	"noncegate/nonce"
)

const (
	checksummed = "0xab16a96D359eC26a11e2C2b3d8f8B8942d5Bfcdb"
	lowerCase   = "0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	upperCase   = "0xAB16A96D359EC26A11E2C2B3D8F8B8942D5BFCDB"
)

func TestTwoSpellingsOfOneAddressAreOneSigner(t *testing.T) {
	digits := "0x" + strings.Repeat("17", 20)
	for in, want := range map[string]string{
		"eip155:1:" + checksummed:                 "eip155:1:" + lowerCase,
		"eip155:1:" + lowerCase:                   "eip155:1:" + lowerCase,
		"eip155:1:" + upperCase:                   "eip155:1:" + lowerCase,
		"eip155:1:0X" + checksummed[2:]:           "eip155:1:" + lowerCase,
		"eip155:9223372036854775807:" + lowerCase: "eip155:9223372036854775807:" + lowerCase,
		"eip155:10:" + digits:                     "eip155:10:" + digits,
		"a/" + checksummed + "/" + upperCase:      "a/" + lowerCase + "/" + lowerCase,
		"chain:" + "0xAb" + lowerCase[4:]:         "chain:" + lowerCase, // of no chain that is known here
		"Treasury-7":                              "Treasury-7",
		"eip155":                                  "eip155",
		"eip1559:1":                               "eip1559:1",
		"X" + checksummed:                         "X" + checksummed, // not an address: a letter before it
		checksummed + "F":                         checksummed + "F",
		checksummed[:41]:                          checksummed[:41],
		checksummed[:41] + "G":                    checksummed[:41] + "G",
		"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZK":    "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZK",
		"~":                                       "~",
		strings.Repeat("S", 128):                  strings.Repeat("S", 128),
	} {
		if got, err := nonce.ParseSigner(in); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestAMistypedAccountIsRefusedWithWhatIsWrong(t *testing.T) {
	wrong := "0xaB" + checksummed[4:] // one letter in the other case
	for in, want := range map[string]string{
		"eip155:":                                 "begins with eip155: and must go on with a chain id and an address",
		"eip155:1":                                "begins with eip155: and must go on with a chain id and an address",
		"eip155:1:":                               "must have an address, 0x and 40 hexadecimal digits, behind its chain id",
		"eip155:1:x":                              "must have an address",
		"eip155:1:" + lowerCase[:41]:              "must have an address",
		"eip155:1:" + lowerCase + "0":             "must have an address",
		"eip155:1:" + lowerCase + ":1":            "must have an address",
		"eip155:1:" + lowerCase[2:]:               "must have an address",
		"eip155:1:0x" + strings.Repeat("g", 40):   "must have an address",
		"eip155:1:1:" + lowerCase:                 "must have an address",
		"eip155::" + lowerCase:                    "must have a chain id behind eip155:, from 1 to 9223372036854775807 and without leading zeros",
		"eip155:0:" + lowerCase:                   "must have a chain id",
		"eip155:01:" + lowerCase:                  "must have a chain id",
		"eip155:+1:" + lowerCase:                  "must have a chain id",
		"eip155:-1:" + lowerCase:                  "must have a chain id",
		"eip155:1_0:" + lowerCase:                 "must have a chain id",
		"eip155:0x1:" + lowerCase:                 "must have a chain id",
		"eip155:9223372036854775808:" + lowerCase: "must have a chain id",
		"EIP155:1:" + lowerCase:                   "must begin with eip155: in lower case",
		"Eip155:anything":                         "must begin with eip155: in lower case",
		"eip155:1:" + wrong:                       "not its checksum (EIP-55)",
		lowerCase:                                 "did you mean eip155:1:" + lowerCase + "?",
		checksummed:                               "did you mean eip155:1:" + lowerCase + "?",
		"0X" + upperCase[2:]:                      "did you mean eip155:1:" + lowerCase + "?",
		wrong:                                     "not its checksum (EIP-55)",
	} {
		got, err := nonce.ParseSigner(in)
		if err == nil || got != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want an error that says %q", in, got, err, want)
		}
	}
}

func TestABeginningOfSignersIsOneThatSomeSignerCanHave(t *testing.T) {
	for in, want := range map[string]string{
		"eip":                     "eip",
		"eip155:":                 "eip155:",
		"eip155:1":                "eip155:1",
		"eip155:1:":               "eip155:1:",
		"eip155:1:0":              "eip155:1:0",
		"eip155:1:0x52":           "eip155:1:0x52",
		"eip155:1:" + checksummed: "eip155:1:" + lowerCase,
		"0x52":                    "0x52",
		lowerCase:                 lowerCase, // of names such as 0x…/hot
		"treasury/" + checksummed: "treasury/" + lowerCase,
	} {
		if got, err := nonce.ParseSignerPrefix(in); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "a b", "eip155:0", "eip155:01:", "eip155::", "eip155:x", "EIP155:1:", "eip155:1:y", "eip155:1:0y", "eip155:1:0xg",
		"eip155:1:" + lowerCase + "0", "eip155:1:" + lowerCase + ":", "eip155:1:0xaB" + checksummed[4:],
	} {
		if got, err := nonce.ParseSignerPrefix(in); err == nil || got != "" {
			t.Errorf("%s: got %q", in, got)
		}
	}
}

func TestACanonicalNameIsParsedWithoutAnAllocation(t *testing.T) {
	for _, name := range []string{"eip155:1:" + lowerCase, "treasury", "a/" + lowerCase} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := nonce.ParseSigner(name); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzParseSigner(f *testing.F) {
	for _, s := range []string{
		"eip155:1:" + checksummed, "eip155:1:" + upperCase, "eip155:01:" + lowerCase, "EIP155:1:" + lowerCase, lowerCase,
		checksummed + checksummed, "0x0x" + checksummed, "a b", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := nonce.ParseSigner(in)
		if _, idErr := nonce.ParseRequestID(in); err == nil && idErr != nil {
			t.Fatalf("it is a signer, and as a request id: %v", idErr)
		}
		if err != nil {
			if got != "" {
				t.Fatalf("got %q with %v", got, err)
			}
			return
		}
		if !strings.EqualFold(got, in) || len(got) != len(in) {
			t.Fatalf("%q became %q", in, got)
		}
		if again, err := nonce.ParseSigner(got); err != nil || again != got {
			t.Fatalf("%q became %q, %v when parsed again", got, again, err)
		}
		if rest, account := strings.CutPrefix(got, "eip155:"); account {
			id, address, _ := strings.Cut(rest, ":")
			if strings.Trim(id, "0123456789") != "" || id[0] == '0' || len(address) != 42 || address[:2] != "0x" || strings.Trim(address[2:], "0123456789abcdef") != "" {
				t.Fatalf("%q is no account", got)
			}
		}
		for n := 1; n <= len(got); n++ { // every signer begins as signers can
			if text, err := nonce.ParseSignerPrefix(got[:n]); err != nil || !strings.EqualFold(text, got[:n]) {
				t.Fatalf("the beginning %q became %q, %v", got[:n], text, err)
			}
		}
	})
}
