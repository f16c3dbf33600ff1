package ethereum

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/test/lab/fakenode"
)

func TestQuantitiesAreNumbersOrAnError(t *testing.T) {
	for text, want := range map[string]int64{
		"0x0": 0, "0x1": 1, "0xff": 255, "0xFf": 255, "0x7fffffffffffffff": 1<<63 - 1, "0x00": 0, "0x0a": 10,
	} {
		if got, err := parseQuantity(text); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "0x and hex", "0x": "0x and hex", "1": "0x and hex", "0X1": "0x and hex", "0x1g": "0x and hex", " 0x1": "0x and hex",
		"0x-1": "0x and hex", "-0x1": "0x and hex", "0x+1": "0x and hex", "0x1_0": "0x and hex",
		"0x8000000000000000": "below 2^63", "0x10000000000000000": "below 2^63", "0x" + strings.Repeat("f", 100): "below 2^63",
	} {
		if got, err := parseQuantity(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q = %d, %v; want %q", text, got, err, want)
		}
	}
}

// nonsense is what a node may answer instead of a block.
func nonsense(good map[string]any) map[string]any {
	with := func(member string, value any) map[string]any {
		b := maps.Clone(good)
		b[member] = value
		return b
	}
	without := func(member string) map[string]any {
		b := maps.Clone(good)
		delete(b, member)
		return b
	}
	return map[string]any{
		"null": nil, "a number": 7, "a string": "0x1", "an array": []any{}, "empty": map[string]any{},
		"no number": without("number"), "number null": with("number", nil), "number 7": with("number", 7), "number -1": with("number", "-0x1"),
		"number too high": with("number", "0xffffffffffffffff"),
		"no hash":         without("hash"), "hash null": with("hash", nil), "hash short": with("hash", "0x12"),
		"hash no hex": with("hash", "0x"+strings.Repeat("z", 64)),
		"no parent":   without("parentHash"), "its own parent": with("parentHash", good["hash"]),
		"no time": without("timestamp"), "time 7": with("timestamp", 7),
		"no transactions": without("transactions"), "transactions null": with("transactions", nil),
		"only hashes": with("transactions", []any{fakenode.TxHash(1).String()}),
	}
}

// TestABlockThatMakesNoSenseIsRefused; trust.txt shows that it is the node's failure.
func TestABlockThatMakesNoSenseIsRefused(t *testing.T) {
	for name, block := range nonsense(fakenode.NewChain(chainStart, blockTime).First().JSON(true)) {
		data, err := json.Marshal(block)
		must(t, err)
		if b, err := decodeBlock(data, true, 1); err == nil {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

var chainStart = fakenode.NewChain(testTime, blockTime).First().Time

// TestBlocksAndCountsOfOtherNodesAreReadAsTheyAre has a test for each row of
// testdata/blocks.json that is an answer; scenarios play the others.
func TestBlocksAndCountsOfOtherNodesAreReadAsTheyAre(t *testing.T) {
	data, err := os.ReadFile("testdata/blocks.json")
	must(t, err)
	var rows []struct {
		What        string
		Right       string
		Transaction map[string]any
		Block       map[string]any
		Count       string
	}
	must(t, json.Unmarshal(data, &rows))
	played := map[string]bool{ // in counts.txt and final.txt, and TestANodeThatRefusesBatchesGetsSmallerOnes
		`eth_getTransactionCount(…, "pending") is an error, "latest" is well`:          true,
		"the count of any block, also of one that does not exist, is the pool's count": true,
		"the tag finalized is refused":                                                 true,
		"a batch of more than three calls is HTTP 500 with a JSON body":                true,
	}
	for _, row := range rows {
		t.Run(row.What, func(t *testing.T) {
			switch {
			case row.Transaction != nil:
				isLeftOut(t, row.Transaction)
			case row.Count != "":
				number, err := parseQuantity(row.Block["number"].(string))
				count, err2 := decodeQuantity([]byte(`"` + row.Count + `"`))
				if err != nil || err2 != nil || number != 10 || count != 1 {
					t.Errorf("%d, %d, %v, %v; want %s", number, count, err, err2, row.Right)
				}
			case !played[row.What]:
				t.Fatalf("there is no test for this row: %s", row.Right)
			}
		})
	}
}

// isLeftOut fails unless an odd transaction is left out of its block, and the others are read.
func isLeftOut(t *testing.T, odd map[string]any) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		tx := transfer(2, 0)
		tx.Extra = odd
		for _, member := range []string{"nonce", "type", "from"} {
			if _, has := odd[member]; !has {
				tx.Extra[member] = nil
			}
		}
		b := w.mine(transfer(1, 0), tx, transfer(3, 0))
		h := w.next()
		read := 0
		for _, u := range h.Uses {
			if !u.Unread {
				read++
			}
		}
		if h.Latest != blockOf(b) || read != 2 || h.Skipped || !w.nodeStatus(0).Up {
			t.Errorf("head %+v, want the two other transactions of the block", h)
		}
	})
}

func TestAmountsOfOffersAreQuantitiesOrNothing(t *testing.T) {
	for text, want := range map[string]string{
		"0x1": "0x1", "0xAB": "0xab", "": "", "0x": "", "1": "", "0xg": "", "0x" + strings.Repeat("f", 64): "0x" + strings.Repeat("f", 64),
		"0x" + strings.Repeat("f", 65): "",
	} {
		if got := amount(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func FuzzBlock(f *testing.F) {
	c := fakenode.NewChain(testTime, blockTime)
	set := transfer(1, 7)
	set.Type = 4
	set.Extra = map[string]any{"authorizationList": []any{map[string]any{
		"chainId": "0x1", "address": fakenode.Account(1), "nonce": "0x1", "yParity": "0x0", "r": "0x1", "s": "0x1",
	}}}
	good, err := json.Marshal(c.Extend(c.First(), transfer(1, 0), set).JSON(true))
	must(f, err)
	f.Add(good)
	f.Add([]byte("null"))
	f.Add([]byte(`{"number":"0x1","transactions":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBlock(data, true, 1)
		if err != nil {
			return
		}
		if b.Number < 0 || b.Hash == b.Parent {
			t.Errorf("block %+v", b.Block)
		}
		for _, u := range b.uses {
			if a, err := address.Parse(u.Account); u.Nonce < 0 || err != nil || a.String() != u.Account {
				t.Errorf("use %+v", u)
			}
		}
	})
}

func FuzzAnswers(f *testing.F) {
	table := knownAnswers()
	c := &Client{table: table}
	f.Add([]byte(`"0x1"`), "nonce too low")
	f.Add([]byte(`{"hash":"0x1","nonce":"0x2","from":"0x3"}`), "already known")
	f.Fuzz(func(t *testing.T, data []byte, message string) {
		digits := strings.TrimLeft(strings.ToLower(strings.Trim(string(data), `"`)), "0x")
		if n, err := decodeQuantity(data); err == nil && (n < 0 || digits != strings.TrimLeft(quantity(n), "0x")) {
			t.Errorf("%s is read as %d", data, n)
		}
		ask := chain.Ask{Account: fakenode.Account(1), Nonce: 2}
		if g, err := decodeGlimpse(data, ask, 1); err == nil && g.seen == chain.Mined && g.block.Number < 0 {
			t.Errorf("%s is read as %+v", data, g)
		}
		if _, err := readSent(data, chain.Tx{Hash: chain.Hash{1}}); err == nil && !strings.Contains(strings.ToLower(string(data)), "0x01") {
			t.Errorf("%s is taken for the hash", data)
		}
		if g := c.table.group(message); g != nil && g.class == chain.InPool && g.missing {
			t.Errorf("%q: %+v", message, g)
		}
	})
}
