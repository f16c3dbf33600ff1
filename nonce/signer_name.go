package nonce

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"noncegate/chain/ethereum/address"
)

// namespace begins the names of Ethereum accounts (CAIP-10). What follows is checked:
// a name that is mistyped would be a sequence of its own, which begins at 0.
const namespace = "eip155:"

// addressBytes is the length of an address: 0x and 40 hexadecimal digits.
const addressBytes = len("0x") + 2*len(address.Address{})

var (
	errNamespace = errors.New("must begin with eip155: in lower case")
	errAccount   = errors.New("begins with eip155: and must go on with a chain id and an address, " +
		"such as eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb")
	errChainID = errors.New("must have a chain id behind eip155:, from 1 to 9223372036854775807 and without leading zeros")
	errAddress = errors.New("must have an address, 0x and 40 hexadecimal digits, behind its chain id")
)

// ParseSigner checks a signer, 1 to 128 visible ASCII characters, and returns it with
// every 20-byte 0x address in it lower-cased: two spellings of one account must not
// become two sequences. An address is 0x and exactly 40 hexadecimal digits with no
// letter or digit on either side.
//
// What begins with eip155: must be the name of an account by CAIP-10, and its address,
// where it has letters of both cases, spelled as EIP-55 says. An address alone is
// refused: it does not say of which chain.
func ParseSigner(s string) (string, error) {
	if err := checkKey(s); err != nil {
		return "", err
	}
	switch {
	case isAccount(s):
		return parseAccount(s)
	case len(s) == addressBytes && isAddressAt(s, 0):
		return "", errBare(s)
	}
	return lowerAddresses(s), nil
}

// ParseSignerPrefix checks the beginning of signers and returns it as they have it. It
// is refused if no signer can begin so.
func ParseSignerPrefix(s string) (string, error) {
	if err := checkKey(s); err != nil {
		return "", err
	}
	if !isAccount(s) {
		return lowerAddresses(s), nil
	}
	if !strings.HasPrefix(s, namespace) {
		return "", errNamespace
	}
	id, spelled, whole := strings.Cut(s[len(namespace):], ":")
	switch {
	case !whole && id == "":
		return s, nil
	case !isChainID(id):
		return "", errChainID
	case len(spelled) == addressBytes:
		return parseAccount(s)
	case len(spelled) > addressBytes || !beginsAddress(spelled):
		return "", errAddress
	}
	return s, nil
}

// isAccount reports whether a name begins with the namespace, in any case.
func isAccount(s string) bool {
	return len(s) >= len(namespace) && s[len(namespace)-1] == ':' && strings.EqualFold(s[:len(namespace)], namespace)
}

// parseAccount checks what isAccount. It allocates nothing for a name that is spelled
// as it is returned.
func parseAccount(s string) (string, error) {
	if !strings.HasPrefix(s, namespace) {
		return "", errNamespace
	}
	colon := strings.IndexByte(s[len(namespace):], ':')
	if colon < 0 {
		return "", errAccount
	}
	at := len(namespace) + colon + 1
	spelled := s[at:]
	switch {
	case !isChainID(s[len(namespace) : at-1]):
		return "", errChainID
	case len(spelled) != addressBytes || !isAddressAt(spelled, 0):
		return "", errAddress
	}
	lower, upper := letters(spelled[2:])
	if lower && upper {
		if _, err := address.Parse(spelled); err != nil {
			return "", fmt.Errorf("has an address that %w", err)
		}
	}
	if !upper && spelled[1] == 'x' {
		return s, nil
	}
	return s[:at] + strings.ToLower(spelled), nil
}

// BareAddressError refuses an address that does not say of which chain it is.
type BareAddressError struct{ Address string }

// Error names Ethereum's own chain as an example.
func (e *BareAddressError) Error() string { return e.Meant(namespace + "1") }

// Meant is the sentence with another chain as the example, such as eip155:10.
func (e *BareAddressError) Meant(chain string) string {
	return "must say of which chain the address is: did you mean " + chain + ":" + e.Address + "?"
}

func errBare(s string) error {
	a, err := address.Parse(s)
	if err != nil {
		return fmt.Errorf("is an address alone, and %w", err)
	}
	return &BareAddressError{Address: a.String()}
}

// isChainID reports whether digits are a number from 1 to 2^63-1 without leading zeros.
func isChainID(digits string) bool {
	if digits == "" || digits[0] < '1' || digits[0] > '9' {
		return false
	}
	_, err := strconv.ParseInt(digits, 10, 64)
	return err == nil
}

// beginsAddress reports whether an address can begin so.
func beginsAddress(s string) bool {
	for i := range len(s) {
		switch {
		case i == 0 && s[i] != '0', i == 1 && s[i] != 'x' && s[i] != 'X', i > 1 && !isHex(s[i]):
			return false
		}
	}
	return true
}

// letters says which cases there are among hexadecimal digits.
func letters(digits string) (lower, upper bool) {
	for i := range len(digits) {
		lower = lower || digits[i] >= 'a'
		upper = upper || digits[i] >= 'A' && digits[i] <= 'F'
	}
	return lower, upper
}

// lowerAddresses lower-cases the addresses in a name that is no account's.
func lowerAddresses(s string) string {
	for i := 0; i+addressBytes <= len(s); {
		if !isAddressAt(s, i) {
			i++
			continue
		}
		if lower := strings.ToLower(s[i : i+addressBytes]); lower != s[i:i+addressBytes] {
			s = s[:i] + lower + s[i+addressBytes:]
		}
		i += addressBytes
	}
	return s
}

func isAddressAt(s string, i int) bool {
	if s[i] != '0' || (s[i+1] != 'x' && s[i+1] != 'X') {
		return false
	}
	if i > 0 && isAlphanumeric(s[i-1]) {
		return false
	}
	end := i + addressBytes
	if end < len(s) && isAlphanumeric(s[end]) {
		return false
	}
	for _, c := range []byte(s[i+2 : end]) {
		if !isHex(c) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
