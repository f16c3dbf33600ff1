package wire

// The headers with which a node opens a connection to another. All are the
// sender's; the first makes the connection one of a node.
const (
	HeaderNode       = "Noncegate-Node"        // the sender's node id
	HeaderNodeTo     = "Noncegate-Node-To"     // the node id it means to reach
	HeaderNodeStore  = "Noncegate-Node-Store"  // which store the sender's nonces are in
	HeaderNodeLink   = "Noncegate-Node-Link"   // a number that grows with each connection that the sender opens, and with each of its starts
	HeaderNodeSecret = "Noncegate-Node-Secret" // #nosec G101 -- the name of a header: what --node-secret says, if it says anything
)
