package chain

import (
	"cmp"
	"context"
	"path"
	"time"

	"noncegate/nonce"
)

// ChainsConfig are the settings of Chains, and what they ask beside the service.
type ChainsConfig struct {
	// Wait is how long a request waits for the first word of its signer's chain. Longer serves more
	// first requests of signers whose nodes are slow, and refuses later when they are away.
	Wait time.Duration
	// Others says what becomes of allocations for the signers of chains that are not configured.
	Others Others
	// Store lists what owners have found.
	Store interface {
		Signers(ctx context.Context, q nonce.SignersQuery) ([]nonce.SignerFigures, error)
		List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error)
	}
	// Ask asks the node that owns the signer of a status or list what its chain says. nil: there are no
	// other nodes.
	Ask func(node, url string, q nonce.Request) (*nonce.ChainSaid, error)
}

// Others is what becomes of a chain that is not configured.
type Others string

// The values of Others. Every other one, such as "allow": such signers are served.
const (
	OthersRefused Others = "refuse"
	OthersWarned  Others = "warn" // they are served, and the log says so
)

// Config are the settings of a Tracker, which the settings of the gateway bound. Zero means the
// default.
type Config struct {
	// Window is how far new nonces may be ahead of the count; 16 is what go-ethereum's
	// pool guarantees an account. Windows overrides it for signers whose name matches a
	// pattern (path.Match), the first one that does.
	Window  int64
	Windows []WindowOf
	// DelegatedWindow is that of accounts with delegated code (EIP-7702), of which nodes
	// keep one transaction; default 1.
	DelegatedWindow int64
	// UnknownFor is how long a hold stays unknown before it may be released; default
	// 10m. Negative: until it is known whether it was used.
	UnknownFor time.Duration
	// GapAfter is how long nonces must wait behind one that no node has seen until it is
	// called a gap, and not less than three blocks; default 30s.
	GapAfter time.Duration
	// StuckAfter is how long the transaction of the lowest unused nonce may be in pools, and not
	// less than three blocks, until it is called stuck; default 5m. Negative: never.
	StuckAfter time.Duration
	// Reconcile is how often counts are asked for although no block said that they
	// changed; default 5m.
	Reconcile time.Duration
	// Timeout bounds one question to the nodes and one op of the service; default 5s.
	Timeout time.Duration
	// MaxSigners bounds the signers that are remembered; default 250,000. Those beyond
	// are served as long as a node's answer is waited for, and not watched.
	MaxSigners int
}

// WindowOf is the window of signers whose name matches a pattern.
type WindowOf struct {
	Pattern string
	Window  int64
}

const (
	defaultWindow     = 16
	defaultUnknownFor = 10 * time.Minute
	gapBlocks         = 3
)

// complete fills in the defaults.
func (c *Config) complete() {
	c.Window = cmp.Or(c.Window, defaultWindow)
	c.DelegatedWindow = cmp.Or(c.DelegatedWindow, 1)
	c.UnknownFor = cmp.Or(c.UnknownFor, defaultUnknownFor)
	c.GapAfter = cmp.Or(c.GapAfter, 30*time.Second)
	c.StuckAfter = cmp.Or(c.StuckAfter, 5*time.Minute)
	c.Reconcile = cmp.Or(c.Reconcile, 5*time.Minute)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxSigners = cmp.Or(c.MaxSigners, 250_000)
}

// window is that of a signer.
func (c *Config) window(signer string, delegated bool) int64 {
	if delegated {
		return c.DelegatedWindow
	}
	for _, w := range c.Windows {
		if ok, _ := path.Match(w.Pattern, signer); ok {
			return w.Window
		}
	}
	return c.Window
}
