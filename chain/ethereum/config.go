package ethereum

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"noncegate/chain/ethereum/internal/jsonrpc"
)

// Config holds the settings of a Client, as docs/configuration.md has them. The zero value of each field but
// ID and Nodes means its default. The numbers are bounded by the settings of the gateway.
type Config struct {
	ID    string // CAIP-2, such as "eip155:1"
	Nodes []string

	PollInterval time.Duration // 0: as follower.interval says
	Finality     string        // "finalized", or how many blocks below the newest
	Lag          int           // how many blocks a node may be behind before its counts are not asked for

	MaxBlocksBehind int           // read one by one after a pause or a reorganization; beyond that they are skipped
	MaxInflight     int           // requests under way at a node, in the parts of slots
	MaxWaiting      int           // requests that wait for each part
	MaxBatch        int           // calls of one request
	MaxAnswerBytes  int64         // of blocks, and of answers to Call and Subscribe; all others have at most smallAnswer
	Timeout         time.Duration // of one request, and of one attempt to connect

	// Dial opens the connections beneath, instead of a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// SettingError says why ID, Nodes or Finality cannot be used.
type SettingError struct{ Chain, Rule string }

// Error returns the sentence. It has no credentials.
func (e *SettingError) Error() string { return fmt.Sprintf("chain %s: %s", e.Chain, e.Rule) }

const (
	smallAnswer = 1 << 20 // bytes of an answer that is no block
	maxNodes    = 16
	maxFinal    = 10_000
	// finalizedTag stands in the field finality for the tag, instead of a number.
	finalizedTag = -1
	maxPause     = 30 * time.Second // between two attempts to reach a node
)

// settings is a Config that was checked.
type settings struct {
	Config
	chainID   uint64
	finality  int64 // blocks below the newest, or finalizedTag
	small     int64 // bytes of an answer that is no block
	endpoints []*jsonrpc.Endpoint
	names     []string
}

// complete fills in the defaults and checks what is there.
func (cfg Config) complete() (s *settings, err error) {
	cfg.Finality = cmp.Or(cfg.Finality, "finalized")
	cfg.Lag = cmp.Or(cfg.Lag, 3)
	cfg.MaxBlocksBehind = cmp.Or(cfg.MaxBlocksBehind, 64)
	cfg.MaxInflight = cmp.Or(cfg.MaxInflight, 64)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 1024)
	cfg.MaxBatch = cmp.Or(cfg.MaxBatch, 100)
	cfg.MaxAnswerBytes = cmp.Or(cfg.MaxAnswerBytes, 16<<20)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	s = &settings{Config: cfg, finality: finalizedTag, small: min(smallAnswer, cfg.MaxAnswerBytes)}
	digits, ok := strings.CutPrefix(s.ID, "eip155:")
	s.chainID, err = strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || s.chainID == 0 || strconv.FormatUint(s.chainID, 10) != digits {
		return nil, s.wrong("ID must be eip155: and the number of the chain without leading zeros, such as eip155:1; is %q", s.ID)
	}
	if cfg.Finality != "finalized" {
		n, err := strconv.ParseUint(cfg.Finality, 10, 31)
		if err != nil || n > maxFinal {
			return nil, s.wrong(`Finality must be "finalized" or a number of blocks from 0 to %d, is %q`, maxFinal, cfg.Finality)
		}
		s.finality = int64(n)
	}
	return s, s.parseNodes()
}

func (s *settings) wrong(rule string, args ...any) error {
	return &SettingError{Chain: s.ID, Rule: fmt.Sprintf(rule, args...)}
}

// parseNodes reads the addresses and names the nodes: by host, with the port where two
// have the same host, with a number where that is the same too.
func (s *settings) parseNodes() error {
	if n := len(s.Nodes); n == 0 || n > maxNodes {
		return s.wrong("Nodes must have 1 to %d addresses, has %d", maxNodes, n)
	}
	hosts := map[string]int{}
	for i, raw := range s.Nodes {
		e, err := jsonrpc.ParseEndpoint(raw)
		if err != nil { // the address is not shown: it may have credentials
			return s.wrong("Nodes: number %d %v", i+1, err)
		}
		s.endpoints = append(s.endpoints, e)
		hosts[hostname(e)]++
	}
	taken := map[string]bool{}
	for _, e := range s.endpoints {
		base := hostname(e)
		if hosts[base] > 1 {
			base = e.Host()
		}
		name := base
		for i := 2; taken[name]; i++ {
			name = fmt.Sprintf("%s#%d", base, i)
		}
		taken[name] = true
		s.names = append(s.names, name)
	}
	return nil
}

func hostname(e *jsonrpc.Endpoint) string {
	if host, _, err := net.SplitHostPort(e.Host()); err == nil {
		return host
	}
	return e.Host()
}
