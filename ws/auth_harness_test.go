package ws

import (
	"testing"
	"time"

	"noncegate/test/lab/inprocess"
)

// known are people with every right.
func known(names ...string) *inprocess.People {
	p := new(inprocess.People)
	for _, name := range names {
		p.Grant(name, "*", inprocess.EveryRight)
	}
	return p
}

// guardedGateway is a gateway that lets in whom people knows, and looks at its
// sessions often.
func guardedGateway(t testing.TB, p *inprocess.People, changes ...func(*setup)) *gateway {
	t.Helper()
	return startGateway(t, append([]func(*setup){func(s *setup) {
		s.ws.Auth = p
		s.ws.PingInterval = time.Second // looked at 16 times as often
	}}, changes...)...)
}

// as connects under a name.
func (g *gateway) as(name string) *client {
	g.Helper()
	return g.dialWith(inprocess.As(name))
}
