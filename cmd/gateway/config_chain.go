package main

import (
	"errors"
	"fmt"
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
	Chain []string `placeholder:"CHAIN=URL,URL"`

	ChainFinality        []string      `default:"finalized" placeholder:"RULE"`
	ChainWindow          []string      `default:"16" placeholder:"N"`
	ChainDelegatedWindow []string      `default:"1,eip155:8453=4" placeholder:"N"`
	UnknownTTL           time.Duration `name:"unknown-ttl" default:"10m" min:"1s" or:"0"`
	UnknownOrphans       string        `default:"refuse" oneof:"refuse,keep"`
	ChainGapAfter        time.Duration `default:"30s" min:"1s"`
	ChainStuckAfter      time.Duration `default:"5m" min:"1s" or:"0"`
	ChainPoll            time.Duration `default:"0s" min:"10ms" or:"0" max:"1h"`
	ChainTimeout         time.Duration `default:"5s" min:"100ms" max:"1m"`
	ChainLag             int           `default:"3" min:"1" max:"63"`
	ChainWait            time.Duration `default:"2s" min:"10ms"`
	EthTake              string        `default:"on" oneof:"on,off"`
	EthReplace           []string      `default:"same" placeholder:"RULE"`
	NewSigners           string        `default:"allow" oneof:"allow,refuse"`
	OtherChains          string        `default:"warn" oneof:"refuse,warn,allow"`
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
		node := strings.TrimSpace(item)
		if m := chainItem.FindStringSubmatch(node); m != nil {
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

// ofChain is the rule of a list of rules that is for a chain: the last that names it, or names none. Each must be read by parse.
func ofChain(flag string, items []string, id string, parse func(rule string) (int64, error)) (n int64, err error) {
	for _, item := range items {
		of, rule, one := cutLast(item)
		if one && !goodChain(of) {
			return 0, settingErrorf(flag, "%q: must be eip155: and a chain id without leading zeros", of)
		}
		value, err := parse(rule)
		if err != nil {
			return 0, settingErrorf(flag, "%q %v", rule, err)
		}
		if !one || of == id {
			n = value
		}
	}
	return n, nil
}

// finality is the rule of a chain: 0 stands for what the chain says.
func (c *ChainConfig) finality(id string) (blocks int, err error) {
	n, err := ofChain("chain-finality", c.ChainFinality, id, func(rule string) (int64, error) {
		if rule == "finalized" {
			return 0, nil
		}
		n, err := strconv.ParseInt(rule, 10, 64)
		if err != nil || n < 1 || n > maxFinality {
			return 0, fmt.Errorf("must be finalized or a number of blocks, 1 to %d", maxFinality)
		}
		return n, nil
	})
	return int(n), err
}

// delegatedWindow is that of delegated accounts of a chain.
func (c *ChainConfig) delegatedWindow(id string) (window int64, err error) {
	return ofChain("chain-delegated-window", c.ChainDelegatedWindow, id, positive)
}

func positive(rule string) (int64, error) {
	n, err := strconv.ParseInt(rule, 10, 64)
	if err != nil || n < 1 {
		return 0, errors.New("must be a number, at least 1")
	}
	return n, nil
}

// windows are those of patterns, and that of all other signers.
func (c *ChainConfig) windows() (all int64, of []chain.WindowOf, err error) {
	for _, item := range c.ChainWindow {
		pattern, rule, one := cutLast(item)
		n, bad := positive(rule)
		if bad != nil {
			return 0, nil, settingErrorf("chain-window", "%q %v", rule, bad)
		}
		if !one {
			all = n
			continue
		}
		if _, bad := path.Match(pattern, ""); bad != nil {
			return 0, nil, settingErrorf("chain-window", "the pattern %q cannot be read", pattern)
		}
		if meta := strings.IndexAny(pattern, `*?[\`); meta >= 0 {
			if bad := rights.CheckPrefix(pattern[:meta]); bad != nil {
				return 0, nil, settingErrorf("chain-window", "the pattern %q %v", pattern, bad)
			}
		}
		of = append(of, chain.WindowOf{Pattern: pattern, Window: n})
	}
	return all, of, nil
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
	item = strings.TrimSpace(item)
	i := strings.LastIndexByte(item, '=')
	if i < 0 {
		return "", item, false
	}
	return item[:i], item[i+1:], true
}

// The bounds of package ethereum.
const (
	maxChainNodes = 16
	maxFinality   = 10_000
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
	return nil
}
