package verify

import "fmt"

// Signer is the name of an account on the wire. Its length is the same for all,
// and its last 16 digits are the account's number in hexadecimal.
func Signer(account int64) string { return fmt.Sprintf("eip155:1:0x%040x", account) }

// hashDigits is how many digits of a transaction hash say what it is about.
const hashDigits = 3 * 16

// TxHash is the hash under which a load marks a nonce used: no two marks of two
// connections have the same, and the part before that of the connection can be
// told from what was marked.
func TxHash(account, nonce, attempt, connection int64) string {
	return fmt.Sprintf("0x%016x%016x%016x%016x", account, nonce, attempt, connection)
}

// sameHash reports whether hash is one that TxHash gives this nonce.
func sameHash(hash string, account, nonce, attempt int64) bool {
	const known = len("0x") + hashDigits
	return len(hash) > known && hash[:known] == TxHash(account, nonce, attempt, 0)[:known]
}
