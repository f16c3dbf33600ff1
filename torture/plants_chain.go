//go:build unix

package torture

const chainFile = "nonce/chain.go"

// ChainPlants are gateways that are wrong about their chain.
var ChainPlants = []Plant{
	{
		Name:    "holds end as without a chain",
		Patches: []Patch{{chainFile, "	case d.chain == nil:\n		to.Status, to.Reason = Released, ReasonExpired\n", "	case d != nil:\n		to.Status, to.Reason = Released, ReasonExpired\n"}},
		Chain:   true,
	},
	{
		Name:    "unknown holds end without asking the nodes",
		Patches: []Patch{{chainFile, "	case d.view.UnknownFor > 0 && d.chain.Unseen(row.Nonce, row.Attempt):\n", "	case d.view.UnknownFor > 0:\n"}},
		Faults:  []string{"nodes-away"},
		Chain:   true,
	},
	{
		Name: "released nonces are handed out although a block has used them",
		Patches: []Patch{
			{chainFile, "		len(d.released) > 0 && d.released[0].nonce < v.Mined\n", "		false\n"},
			{chainFile, "	for len(d.released) > 0 && d.released[0].nonce < v.Mined {\n", "	for len(d.released) > 0 && d.released[0].nonce < 0 {\n"},
		},
		Chain: true,
	},
}
