package endpoint

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"noncegate/chain"
	"noncegate/chain/ethereum/rawtx"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

// setCode is a transaction of type 4 of chain 1 with authorizations that count.
func setCode(t *testing.T) (raw string, tx *rawtx.Tx) {
	t.Helper()
	raw = vector(t, "set code")
	bytes, err := hex.DecodeString(raw[2:])
	must(t, err)
	tx, err = rawtx.Decode(bytes)
	must(t, err)
	tx.RecoverAuthorities()
	return raw, tx
}

// vector is a transaction that another library has signed.
func vector(t *testing.T, name string) (raw string) {
	t.Helper()
	text, err := os.ReadFile("../rawtx/testdata/vectors.json")
	must(t, err)
	var vectors []struct{ Name, Raw string }
	must(t, json.Unmarshal(text, &vectors))
	for _, v := range vectors {
		if v.Name == name {
			return v.Raw
		}
	}
	t.Fatalf("there is no transaction %q", name)
	return ""
}

func TestAnAuthorizationMayNotUseANonceThatSomebodyElseHolds(t *testing.T) {
	wallet := access.RightAllocate | access.RightMark
	raw, tx := setCode(t)
	authority := tx.Authorizations[0]
	if !authority.Valid {
		t.Fatal("the authorization of the vector does not count")
	}
	of := signer(authority.Authority.String())
	start := func(t *testing.T) *gateway {
		g := startGateway(t, letIn(map[string]access.Right{"alice": wallet, "bob": wallet}))
		g.nodes.at(tx.From.String(), chain.Start{Latest: int64(tx.Nonce), Pending: int64(tx.Nonce)})
		g.nodes.at(authority.Authority.String(), chain.Start{Latest: int64(authority.Nonce), Pending: int64(authority.Nonce)})
		return g
	}
	t.Run("held by somebody else", func(t *testing.T) {
		g := start(t)
		if n := g.allocate(of, "bob"); n != int64(authority.Nonce) {
			t.Fatalf("allocated %d", n)
		}
		g.dialAs("alice").send(raw).wantError(t, wire.CodeRejected, "an authorization of the transaction would use nonce")
		g.nodes.wantGiven()
		if row := g.row(signer(tx.From.String()), int64(tx.Nonce)); row.Status != 0 {
			t.Errorf("the nonce of the sender is %v", row.Status)
		}
	})
	t.Run("sent by somebody else", func(t *testing.T) {
		g := start(t)
		g.dialAs("bob").send(transaction(authority.Authority.String(), int64(authority.Nonce), "x"))
		g.dialAs("alice").send(raw).wantError(t, wire.CodeRejected, "is held by somebody else; nothing was sent")
	})
	for name, before := range map[string]func(g *gateway){
		"held by nobody": func(*gateway) {},
		"held by who sends": func(g *gateway) {
			g.allocate(of, "alice")
		},
		"given back": func(g *gateway) {
			g.allocate(of, "bob")
			must(g.TB, g.do(&nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: of, Nonce: int64(authority.Nonce), Attempt: 1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			before(g)
			g.dialAs("alice").send(raw).wantResult(t, `"`+chain.Hash(tx.Hash).String()+`"`)
			g.nodes.wantGiven(int64(tx.Nonce))
		})
	}
}

func TestAuthorizationsAreChargedByNumberOnceTheSenderMaySend(t *testing.T) {
	raw, tx := setCode(t)
	n := len(tx.Authorizations)
	const wallet = access.RightAllocate | access.RightMark
	p := who(map[string]access.Right{"alice": wallet, "poor": wallet, "eve": 0})
	for name, burst := range map[string]int{"alice": 2 + n, "poor": n, "eve": 2} {
		p.Limit(name, access.Quota{RequestsPerSecond: 0.001, Burst: burst})
	}
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	g.nodes.at(tx.From.String(), chain.Start{Latest: int64(tx.Nonce), Pending: int64(tx.Nonce)})
	eve := g.dialAs("eve")
	eve.send(raw).wantError(t, wire.CodeForbidden, "the right mark on this signer is missing")
	eve.call(methodChainID, "[]").wantResult(t, `"0x1"`) // the authorizations of what is forbidden cost nothing
	g.dialAs("poor").send(raw).wantError(t, wire.CodeServerBusy, "the requests a second of this principal are used up")
	g.nodes.wantGiven()
	alice := g.dialAs("alice")
	alice.send(raw).wantResult(t, `"`+chain.Hash(tx.Hash).String()+`"`)
	alice.call(methodChainID, "[]").wantResult(t, `"0x1"`)
	alice.call(methodChainID, "[]").wantError(t, wire.CodeServerBusy, "the requests a second of this principal are used up")
}
