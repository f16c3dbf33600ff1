package fakenode

// NewHandler makes a node that has only the first block of a chain and listens nowhere:
// it is a http.Handler, for a server on a real port. Who serves it calls CloseSockets at
// its end.
func NewHandler(c *Chain, chainID int64) *Node {
	return &Node{
		chain: c, chainID: chainID, head: c.First(),
		code: map[string]string{}, handlers: map[string]Handler{}, sockets: map[*socket]bool{}, calls: map[string]int{},
	}
}
