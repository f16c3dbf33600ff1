package history

import (
	"strings"
	"testing"
	"time"
)

// What CheckChain must find, and what it must let pass.
func TestTheChainsWordIsJudged(t *testing.T) {
	const ms, account = time.Millisecond, "eip155:1:0x1"
	allocate := func(attempt int64, start, end time.Duration, heldUntil int64) Call {
		return Call{Kind: Allocate, Signer: account, Outcome: Happened, Start: start, End: end, HeldUntil: heldUntil, Nonces: []Given{{Nonce: 7, Attempt: attempt}}}
	}
	tx := func(attempt int64, sent, mined time.Duration) Tx {
		return Tx{Signer: account, Nonce: 7, Attempt: attempt, Hash: "0xaa", Sent: sent, Mined: mined}
	}
	row := func(status string) []StoredSigner {
		return []StoredSigner{{Signer: account, Rows: []Row{{Nonce: 7, Status: status}}}}
	}
	first := allocate(1, 10*ms, 20*ms, 1_001_000)
	again := func(start time.Duration) Call { return allocate(2, start, start+5*ms, 1_009_000) }
	for name, tt := range map[string]struct {
		chain Chain
		want  string // a part of the violation; "": none
	}{
		"sent in time and not given again":    {Chain{Calls: []Call{first}, Txs: []Tx{tx(1, 500*ms, 900*ms)}}, ""},
		"sent in time and given again":        {Chain{Calls: []Call{first, again(3000 * ms)}, Txs: []Tx{tx(1, 500*ms, 0)}}, "before his hold ended"},
		"sent late and given again before":    {Chain{Calls: []Call{first, again(3000 * ms)}, Txs: []Tx{tx(1, 2990*ms, 3100*ms)}}, ""},
		"sent late and given again at once":   {Chain{Calls: []Call{first, again(3900 * ms)}, Txs: []Tx{tx(1, 2990*ms, 3100*ms)}}, ""},
		"sent late, mined and given again":    {Chain{Calls: []Call{first, again(4200 * ms)}, Txs: []Tx{tx(1, 2990*ms, 3100*ms)}}, "a block had used it"},
		"given back and sent":                 {Chain{Calls: []Call{first, again(3000 * ms)}, Txs: []Tx{{Signer: account, Nonce: 7, Attempt: 1, Sent: 500 * ms, GivenBack: true}}}, ""},
		"mined while no node tells of it":     {Chain{Calls: []Call{first, again(4200 * ms)}, Txs: []Tx{tx(1, 2990*ms, 3100*ms)}, Blind: []Span{{3000 * ms, 4000 * ms}}}, ""},
		"mined long after no node told of it": {Chain{Calls: []Call{first, again(5200 * ms)}, Txs: []Tx{tx(1, 2990*ms, 3100*ms)}, Blind: []Span{{3000 * ms, 4000 * ms}}}, "a block had used it"},
		"given again without a transaction":   {Chain{Calls: []Call{first, again(3000 * ms)}, Final: row(Released)}, ""},
		"consumed without a transaction":      {Chain{Calls: []Call{first}, Final: row(Consumed)}, "nobody sent"},
		"released and mined":                  {Chain{Calls: []Call{first}, Txs: []Tx{tx(1, 500*ms, 900*ms)}, Final: row(Released)}, "in the end"},
		"held, mined just now":                {Chain{Calls: []Call{first}, Txs: []Tx{tx(1, 500*ms, 8900*ms)}, Final: row(Held)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.chain.BeganAt, tt.chain.Settled = 1_000_000, 9*time.Second
			found := CheckChain(&tt.chain, ChainLimits{Told: time.Second, Slack: 50 * ms})
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, tt.want)) {
				t.Errorf("found %v, want %q", found, tt.want)
			}
		})
	}
}
