package address_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"noncegate/chain/ethereum/address"
	"noncegate/test/lab/expect"
)

// The test vectors of EIP-55.
var eip55 = []string{
	"0x52908400098527886E0F7030069857D2E4169EE7", // all upper case
	"0x8617E340B3D01FA5F11F306F4090FD50E238070D",
	"0xde709f2102306220921060314715629080e2fb77", // all lower case
	"0x27b1fdb04752bbc536007a920d24acb045561c26",
	"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
	"0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
	"0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
	"0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
}

func TestTheVectorsOfEIP55(t *testing.T) {
	for _, spelled := range eip55 {
		a, err := address.Parse(spelled)
		if err != nil {
			t.Errorf("%s: %v", spelled, err)
			continue
		}
		if got := address.Checksum(a); got != spelled {
			t.Errorf("checksum: got %s, want %s", got, spelled)
		}
		if got, want := a.String(), strings.ToLower(spelled); got != want {
			t.Errorf("lower case: got %s, want %s", got, want)
		}
	}
}

func TestLettersOfOneCaseCarryNoChecksum(t *testing.T) {
	const mixed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	want, err := address.Parse(mixed)
	expect.Must(t, err)
	for _, in := range []string{strings.ToLower(mixed), "0x" + strings.ToUpper(mixed[2:]), "0X" + mixed[2:]} {
		if got, err := address.Parse(in); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", in, got, err, want)
		}
	}
	digitsOnly := "0x" + strings.Repeat("17", 20)
	if a, err := address.Parse(digitsOnly); err != nil || a.String() != digitsOnly || address.Checksum(a) != digitsOnly {
		t.Errorf("%s: got %v, %v", digitsOnly, a, err)
	}
}

func TestEveryChangedCharacterOfAChecksummedAddressIsNoticed(t *testing.T) {
	const mixed = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	for i := 2; i < len(mixed); i++ {
		for _, c := range "0123456789abcdefABCDEF" {
			in := mixed[:i] + string(c) + mixed[i+1:]
			if in == mixed {
				continue
			}
			// One mistyped character has a chance of one in some thousands to keep the
			// checksum. It happens for none of these, which the vector makes certain.
			if a, err := address.Parse(in); !errors.Is(err, address.ErrChecksum) || a != (address.Address{}) {
				t.Errorf("%s: got %v, %v, want ErrChecksum", in, a, err)
			}
		}
	}
}

func TestWhatIsNoAddressIsRefused(t *testing.T) {
	forty := strings.Repeat("ab", 20)
	for _, in := range []string{"", "0x", forty, "0x" + forty[1:], "0x" + forty + "a", "0x" + forty + "ab", "1x" + forty, "0y" + forty,
		"0x" + forty[:39] + "g", " 0x" + forty, "0x" + forty[:38] + "é", "eip155:1:0x" + forty} {
		if a, err := address.Parse(in); !errors.Is(err, address.ErrForm) || a != (address.Address{}) {
			t.Errorf("%q: got %v, %v, want ErrForm", in, a, err)
		}
	}
}

func TestKeccak256(t *testing.T) {
	for in, want := range map[string]string{
		"":      "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
		"hello": "1c8aff950685c2ed4bc3174f3472287b56d9517b9c948127319a09a7a36deac8",
	} {
		got := address.Keccak256([]byte(in))
		if hex.EncodeToString(got[:]) != want {
			t.Errorf("%q: got %x, want %s", in, got, want)
		}
	}
	if address.Keccak256([]byte("he"), nil, []byte("llo")) != address.Keccak256([]byte("hello")) {
		t.Error("the hash of parts differs from the hash of the whole")
	}
}

func FuzzParse(f *testing.F) {
	for _, spelled := range eip55 {
		f.Add(spelled)
	}
	f.Add("0X" + strings.Repeat("aB", 20))
	f.Fuzz(func(t *testing.T, in string) {
		a, err := address.Parse(in)
		if err != nil {
			if a != (address.Address{}) {
				t.Fatalf("got %v with %v", a, err)
			}
			return
		}
		if !strings.EqualFold(a.String(), in) || !strings.EqualFold(address.Checksum(a), in) {
			t.Fatalf("%q became %v", in, a)
		}
		for _, spelled := range []string{a.String(), address.Checksum(a)} {
			if again, err := address.Parse(spelled); err != nil || again != a {
				t.Fatalf("%q became %q, which is read as %v, %v", in, spelled, again, err)
			}
		}
	})
}
