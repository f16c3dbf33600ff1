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
	Wait   time.Duration // how long a request waits for the first word of its signer's chain
	Others Others
	Store  interface { // lists what owners have found
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

// Config are the settings of a Tracker, as docs/configuration.md has them; the settings of the gateway
// bound them. Zero means the default.
type Config struct {
	Window          int64
	Windows         []WindowOf // override Window for signers that match, the first one that does
	DelegatedWindow int64
	UnknownFor      time.Duration // negative: until it is known whether the hold was used
	GapAfter        time.Duration // not less than three blocks
	StuckAfter      time.Duration // the same; negative: never
	Reconcile       time.Duration // how often counts are asked for although no block said that they changed
	Timeout         time.Duration // of one question to the nodes, and of one op of the service
	// MaxSigners bounds the signers that are remembered. Those beyond are served as long as a node's answer is
	// waited for, and not watched.
	MaxSigners int
}

// WindowOf is the window of signers whose name matches a pattern (path.Match).
type WindowOf struct {
	Pattern string
	Window  int64
}

const gapBlocks = 3

// complete fills in the defaults.
func (c *Config) complete() {
	c.Window = cmp.Or(c.Window, 16) // what go-ethereum's pool guarantees an account
	c.DelegatedWindow = cmp.Or(c.DelegatedWindow, 1)
	c.UnknownFor = cmp.Or(c.UnknownFor, 10*time.Minute)
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
