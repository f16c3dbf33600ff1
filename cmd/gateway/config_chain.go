package main

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"noncegate/chain"
	"noncegate/internal/access/rights"
	"noncegate/nonce"
	"noncegate/ws"
)

// ChainConfig is which chains are asked about signers. All nodes of a store are to have
// the same.
type ChainConfig struct {
	Chain []string `type:"list" group:"chain" placeholder:"CHAIN=URL,URL" help:"Chains to ask about signers whose names begin with them, each with the nodes to ask: eip155:1=ws://HOST:PORT,https://HOST. May be given several times. Best given by the environment where a URL holds a key. Default: none, and then no hold is ever ended by what a chain says."`

	ChainFinality        []string      `type:"list" group:"chain" default:"finalized" placeholder:"RULE" help:"Which block is final: finalized, as the chain says, or so many blocks behind the head, such as 64; for one chain eip155:10=64. Only a final block raises floors."`
	ChainWindow          []string      `type:"list" group:"chain" default:"16" placeholder:"N" help:"How far new nonces of a signer may be ahead of the chain's count; for the signers of a pattern eip155:1:0x5290*=64. Beyond it: hold_limit. Nodes drop what is too far ahead."`
	ChainDelegatedWindow []string      `type:"list" group:"chain" default:"1,eip155:8453=4" placeholder:"N" help:"The same for accounts with delegated code (EIP-7702), of which nodes keep one transaction at a time; for one chain eip155:8453=4, which is what nodes of Base keep."`
	UnknownTTL           time.Duration `name:"unknown-ttl" group:"chain" default:"10m" help:"How long a hold whose time is over, and of which nobody knows whether it was used, is looked for before its nonce is handed out again. 0: until somebody knows."`
	UnknownOrphans       string        `group:"chain" default:"refuse" help:"What a start does when the store has unknown holds of signers whose chain is not configured: refuse it, or keep them, with a warning, until somebody says what became of them."`
	ChainGapAfter        time.Duration `group:"chain" default:"30s" help:"How long transactions must wait behind a nonce that no node has seen, and not less than three blocks, until that is called a gap."`
	ChainStuckAfter      time.Duration `group:"chain" default:"5m" help:"How long the next transaction of an account may be in the pools of nodes, and not less than three blocks, until it is called stuck: its fee may be too low. 0: never."`
	ChainPoll            time.Duration `group:"chain" default:"0s" help:"How often nodes are asked for their head. 0: twice a block."`
	ChainTimeout         time.Duration `group:"chain" default:"5s" help:"Longest wait for one answer of a node."`
	ChainLag             int           `group:"chain" default:"3" help:"Blocks that a node may be behind the others; one further behind is not asked."`
	ChainWait            time.Duration `group:"chain" default:"2s" help:"How long a request for a signer that is new here waits for the chain to say where the account stands. Then it is unavailable, and nothing happened."`
	EthTake              string        `group:"chain" default:"on" help:"on: a transaction sent through /eth/CHAIN takes the next nonce in passing if nobody holds it. off: its nonce must be held."`
	EthReplace           []string      `type:"list" group:"chain" default:"same" placeholder:"RULE" help:"Which transaction sent through /eth/CHAIN may replace another one of its nonce: same, one that pays the same to the same recipient with the same data, or nothing to its own account; any. For one principal NAME=any. A client may say any itself, by ?replace=any in the URL or the header Noncegate-Replace: any."`
	NewSigners           string        `group:"chain" default:"allow" help:"allow, or refuse nonces of a signer that was never used, so that a mistyped name is no new sequence; nonce_setFloor makes one known."`
	OtherChains          string        `group:"chain" default:"warn" help:"What is done with allocations for eip155 signers of a chain that is not in --chain, where others are, such as after a slip in the chain id: refuse, warn (in the log), or allow. Their nonces begin at 0."`
}

// ChainNodes are the nodes of one chain.
type ChainNodes struct {
	ID    string // CAIP-2
	Nodes []string
}

var chainItem = regexp.MustCompile(`^(eip155:[^=:]*)=(.*)$`)

// Chains are the chains of --chain, in the order in which they were given.
func (c *ChainConfig) Chains() (list []ChainNodes, err error) {
	for _, item := range c.Chain {
		node := item
		if m := chainItem.FindStringSubmatch(item); m != nil {
			if !goodChain(m[1]) {
				return nil, settingErrorf("chain", "%q: must be eip155: and a chain id without leading zeros", m[1])
			}
			if slices.ContainsFunc(list, func(l ChainNodes) bool { return l.ID == m[1] }) {
				return nil, settingErrorf("chain", "%s is given twice; name all its nodes once, with commas between", m[1])
			}
			list, node = append(list, ChainNodes{ID: m[1]}), m[2]
		} else if len(list) == 0 {
			return nil, settingErrorf("chain", "must be CHAIN=URL,URL, such as eip155:1=ws://127.0.0.1:8546")
		}
		u, bad := url.Parse(node)
		if bad != nil || u.Host == "" || !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme) {
			return nil, settingErrorf("chain", "number %d of the nodes of %s must be a URL that begins with ws://, wss://, http:// or https://",
				len(list[len(list)-1].Nodes)+1, list[len(list)-1].ID)
		}
		last := &list[len(list)-1]
		last.Nodes = append(last.Nodes, node)
	}
	return list, nil
}

// exampleChain is a chain to name to people: the first that is configured, else Ethereum.
func (c *ChainConfig) exampleChain() string {
	if list, err := c.Chains(); err == nil && len(list) > 0 {
		return list[0].ID
	}
	return "eip155:1"
}

func goodChain(id string) bool {
	digits := strings.TrimPrefix(id, "eip155:")
	n, err := strconv.ParseInt(digits, 10, 64)
	return err == nil && n > 0 && strconv.FormatInt(n, 10) == digits
}

// finality is the rule of a chain: 0 stands for what the chain says.
func (c *ChainConfig) finality(id string) (blocks int, err error) {
	for _, item := range c.ChainFinality {
		of, rule, one := strings.Cut(item, "=")
		if !one {
			of, rule = id, item
		} else if !goodChain(of) {
			return 0, settingErrorf("chain-finality", "%q: must be eip155: and a chain id without leading zeros", of)
		}
		n, bad := strconv.Atoi(rule)
		if rule == "finalized" {
			n, bad = 0, nil
		} else if bad == nil && (n < 1 || n > maxFinality) {
			bad = strconv.ErrRange
		}
		if bad != nil {
			return 0, settingErrorf("chain-finality", "%q must be finalized or a number of blocks, 1 to %d", rule, maxFinality)
		}
		if of == id {
			blocks = n
		}
	}
	return blocks, nil
}

// windows are those of patterns, and that of all other signers.
func (c *ChainConfig) windows() (all int64, of []chain.WindowOf, err error) {
	for _, item := range c.ChainWindow {
		i := strings.LastIndexByte(item, '=')
		n, bad := strconv.ParseInt(item[i+1:], 10, 64)
		switch {
		case bad != nil || n < 1:
			return 0, nil, settingErrorf("chain-window", "%q must be a number, at least 1", item[i+1:])
		case i < 0:
			all = n
			continue
		}
		if _, bad := path.Match(item[:i], ""); bad != nil {
			return 0, nil, settingErrorf("chain-window", "the pattern %q cannot be read", item[:i])
		}
		if meta := strings.IndexAny(item[:i], `*?[\`); meta >= 0 {
			if bad := rights.CheckPrefix(item[:meta]); bad != nil {
				return 0, nil, settingErrorf("chain-window", "the pattern %q %v", item[:i], bad)
			}
		}
		of = append(of, chain.WindowOf{Pattern: item[:i], Window: n})
	}
	return all, of, nil
}

// delegatedWindow is that of delegated accounts of a chain.
func (c *ChainConfig) delegatedWindow(id string) (window int64, err error) {
	for _, item := range c.ChainDelegatedWindow {
		of, rule, one := cutLast(item)
		if !one {
			of = id
		} else if !goodChain(of) {
			return 0, settingErrorf("chain-delegated-window", "%q: must be eip155: and a chain id without leading zeros", of)
		}
		n, bad := strconv.ParseInt(rule, 10, 64)
		if bad != nil || n < 1 {
			return 0, settingErrorf("chain-delegated-window", "%q must be a number, at least 1", rule)
		}
		if of == id {
			window = n
		}
	}
	return window, nil
}

// replaces reports, by --eth-replace, of which principals a transaction may replace any other.
func (c *ChainConfig) replaces() func(nonce.Principal) bool {
	named, all := map[nonce.Principal]bool{}, false
	for _, item := range c.EthReplace {
		name, rule, one := cutLast(item)
		if one {
			named[nonce.PrincipalOf(name)] = rule == ws.ReplaceAny
		} else {
			all = rule == ws.ReplaceAny
		}
	}
	return func(p nonce.Principal) bool {
		may, said := named[p]
		return may || all && !said
	}
}

// cutLast cuts an item NAME=RULE; one: it has a name, which is of one principal.
func cutLast(item string) (name, rule string, one bool) {
	i := strings.LastIndexByte(item, '=')
	if i < 0 {
		return "", item, false
	}
	return item[:i], item[i+1:], true
}

// The bounds of package ethereum.
const (
	maxChainNodes   = 16
	maxFinality     = 10_000
	maxChainPoll    = time.Hour
	maxChainTimeout = time.Minute
	maxChainLag     = 63
)

func (c *ChainConfig) check() error {
	list, err := c.Chains()
	if err != nil {
		return err
	}
	for _, l := range list {
		if len(l.Nodes) > maxChainNodes {
			return settingErrorf("chain", "%s has %d nodes; at most %d are asked", l.ID, len(l.Nodes), maxChainNodes)
		}
	}
	for _, l := range append(list, ChainNodes{ID: "eip155:1"}) {
		if _, err := c.finality(l.ID); err != nil {
			return err
		}
		if _, err := c.delegatedWindow(l.ID); err != nil {
			return err
		}
	}
	if _, _, err := c.windows(); err != nil {
		return err
	}
	for _, item := range c.EthReplace {
		name, rule, one := cutLast(item)
		if rule != "same" && rule != ws.ReplaceAny || one && name == "" {
			return settingErrorf("eth-replace", "%q must be same, any, or PRINCIPAL=same or PRINCIPAL=any", item)
		}
	}
	return cmp.Or(
		zeroOrAtLeast("unknown-ttl", c.UnknownTTL, time.Second),
		atLeast("chain-gap-after", c.ChainGapAfter, time.Second),
		zeroOrAtLeast("chain-stuck-after", c.ChainStuckAfter, time.Second),
		zeroOrAtLeast("chain-poll", c.ChainPoll, 10*time.Millisecond),
		atMost("chain-poll", c.ChainPoll, maxChainPoll),
		atLeast("chain-timeout", c.ChainTimeout, 100*time.Millisecond),
		atMost("chain-timeout", c.ChainTimeout, maxChainTimeout),
		atLeast("chain-lag", c.ChainLag, 1),
		atMost("chain-lag", c.ChainLag, maxChainLag),
		atLeast("chain-wait", c.ChainWait, 10*time.Millisecond),
		oneOf("unknown-orphans", c.UnknownOrphans, "refuse", "keep"),
		oneOf("eth-take", c.EthTake, "on", "off"),
		oneOf("other-chains", c.OtherChains, "refuse", "warn", "allow"),
		oneOf("new-signers", c.NewSigners, "allow", "refuse"),
	)
}
