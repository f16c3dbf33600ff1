package ethereum

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/wire"
)

// errNoBlock says that the node has no such block.
var errNoBlock = errors.New("the node does not have the block")

// parseQuantity reads a number: 0x and hexadecimal digits, below 2^63. Some nodes write
// leading zeros, which the specification forbids and which leave no doubt.
func parseQuantity(s string) (int64, error) {
	digits, ok := strings.CutPrefix(s, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	switch {
	case !ok || err != nil && !errors.Is(err, strconv.ErrRange) || strings.ContainsAny(digits, "+_"):
		return 0, errors.New("must be 0x and hexadecimal digits")
	case err != nil || n > math.MaxInt64:
		return 0, errors.New("must be below 2^63")
	}
	return int64(n), nil
}

// quantity spells a number as nodes want it.
func quantity(n int64) string { return "0x" + strconv.FormatInt(n, 16) }

func parseHash(s string) (h chain.Hash, err error) {
	if len(s) != 2+2*len(h) || s[:2] != "0x" {
		return h, errors.New("must be 0x and 64 hexadecimal digits")
	}
	if _, err := hex.Decode(h[:], []byte(s[2:])); err != nil {
		return h, errors.New("must be 0x and 64 hexadecimal digits")
	}
	return h, nil
}

// amount takes a price as a node wrote it: a quantity of at most 256 bits. Anything else
// is as good as none.
func amount(s string) string {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok || len(digits) == 0 || len(digits) > 64 || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return ""
	}
	return strings.ToLower(s)
}

// decodeQuantity reads a result that is a quantity.
func decodeQuantity(result []byte) (int64, error) {
	var s string
	if err := wire.Unmarshal(result, &s); err != nil {
		return 0, errors.New("must be a string")
	}
	return parseQuantity(s)
}

// maxNumber is above the number of every block there will ever be.
const maxNumber = 1 << 48

// block is what is kept of a block.
type block struct {
	chain.Block
	full bool        // uses were read
	uses []chain.Use // in order
}

type header struct {
	Number       string   `json:"number"`
	Hash         string   `json:"hash"`
	ParentHash   string   `json:"parentHash"`
	Timestamp    string   `json:"timestamp"`
	Transactions wire.Raw `json:"transactions"`
}

// decodeBlock reads a block, with the uses of nonces if full. errNoBlock: it is null.
func decodeBlock(result []byte, full bool, chainID uint64) (*block, error) {
	if string(result) == "null" {
		return nil, errNoBlock
	}
	var h header
	if err := wire.Unmarshal(result, &h); err != nil {
		return nil, errors.New("block: must be an object as eth_getBlockByNumber has it")
	}
	b := &block{full: full}
	var err error
	check := func(field string, e error) {
		if e != nil && err == nil {
			err = fmt.Errorf("block: %s %w", field, e)
		}
	}
	var e error
	b.Number, e = parseQuantity(h.Number)
	if e == nil && b.Number >= maxNumber {
		e = errors.New("must be below 2^48")
	}
	check("number", e)
	b.Hash, e = parseHash(h.Hash)
	check("hash", e)
	b.Parent, e = parseHash(h.ParentHash)
	check("parentHash", e)
	seconds, e := parseQuantity(h.Timestamp)
	check("timestamp", e)
	b.Time = time.Unix(min(seconds, math.MaxInt32<<8), 0)
	if err == nil && b.Hash == b.Parent {
		check("parentHash", errors.New("must not be the hash of the block itself"))
	}
	if err == nil && full {
		b.uses, err = decodeUses(h.Transactions, chainID)
	}
	return b, err
}

type transaction struct {
	Type              string   `json:"type"`
	From              string   `json:"from"`
	Nonce             string   `json:"nonce"`
	Hash              string   `json:"hash"`
	AuthorizationList wire.Raw `json:"authorizationList"`
}

// decodeUses reads the transactions of a block. Only types 0 to 4 say for sure that a
// nonce of their sender was used: deposits of rollups and the like have a sender and a
// nonce that mean something else. Of those, and of a transaction that cannot be read, only the
// sender is told, if there is one: the next count tells the rest.
func decodeUses(transactions []byte, chainID uint64) ([]chain.Use, error) {
	var uses []chain.Use
	err := wire.Elements(transactions, func(i int, element []byte) error {
		if !bytes.HasPrefix(bytes.TrimSpace(element), []byte("{")) {
			return fmt.Errorf("block: transactions[%d] must be an object", i)
		}
		var t transaction
		if wire.Unmarshal(element, &t) != nil {
			return nil
		}
		kind, err := parseQuantity(t.Type)
		if t.Type == "" { // nodes of old chains leave it out
			kind, err = 0, nil
		}
		use, bad := t.use()
		if err != nil || bad != nil || kind > 4 {
			if use.Account != "" {
				uses = append(uses, chain.Use{Account: use.Account, Unread: true})
			}
			return nil
		}
		uses = append(uses, use)
		if kind == 4 {
			uses = appendAuthorized(uses, t.AuthorizationList, use.Tx, chainID)
		}
		return nil
	})
	if err != nil && !strings.HasPrefix(err.Error(), "block: ") {
		err = errors.New("block: transactions must be an array")
	}
	return uses, err
}

func (t *transaction) use() (u chain.Use, err error) {
	from, err := address.Parse(strings.ToLower(t.From))
	if err != nil {
		return u, fmt.Errorf("from %w", err)
	}
	u.Account = from.String()
	if u.Nonce, err = parseQuantity(t.Nonce); err != nil {
		return u, fmt.Errorf("nonce %w", err)
	}
	if u.Tx, err = parseHash(t.Hash); err != nil {
		return u, fmt.Errorf("hash %w", err)
	}
	return u, nil
}

// authorization is one element of an authorizationList, as nodes write it.
type authorization struct {
	ChainID string `json:"chainId"`
	Address string `json:"address"`
	Nonce   string `json:"nonce"`
	YParity string `json:"yParity"`
	R       string `json:"r"`
	S       string `json:"s"`
}

// appendAuthorized adds the nonces that authorizations may have used. One that cannot be
// read, or that nodes skip, is left out: the next count tells.
func appendAuthorized(uses []chain.Use, list []byte, tx chain.Hash, chainID uint64) []chain.Use {
	_ = wire.Elements(list, func(_ int, element []byte) error {
		var a authorization
		if wire.Unmarshal(element, &a) != nil {
			return nil
		}
		if account, n, ok := a.authority(chainID); ok {
			uses = append(uses, chain.Use{Account: account, Nonce: n, Tx: tx, Authorization: true})
		}
		return nil
	})
	return uses
}

// word reads a quantity of at most 256 bits.
func word(s string) (w [32]byte, ok bool) {
	digits, ok := strings.CutPrefix(s, "0x")
	if !ok || len(digits) == 0 || len(digits) > 64 {
		return w, false
	}
	if len(digits)%2 != 0 {
		digits = "0" + digits
	}
	_, err := hex.Decode(w[32-len(digits)/2:], []byte(digits))
	return w, err == nil
}
