package ws

import (
	"testing"

	"noncegate/internal/access"
	"noncegate/internal/testenv/inprocess"
	"noncegate/internal/testenv/wait"
	"noncegate/nonce"
)

// Who holds a nonce is told to the holder, and to who may do something about it.
func TestTheNameOfAHolderIsForWhomItConcerns(t *testing.T) {
	for _, mode := range []nonce.Mode{nonce.WorkerQueue, nonce.Basic} {
		p := new(inprocess.People)
		p.Grant("ada", "*", access.RightAllocate|access.RightRead)
		p.Grant("eve", "*", access.RightAllocate|access.RightRead)
		for name, right := range map[string]access.Right{"marker": access.RightMarkAny, "mender": access.RightRepair, "admin": access.RightAdmin} {
			p.Grant(name, "a", right|access.RightRead)
			p.Grant(name, "b", access.RightRead)
		}
		met := make(chan string, 10)
		g := guardedGateway(t, p, func(s *setup) { s.Service.Mode = mode; s.ws.Met = func(name string) { met <- name } })
		ada, eve := g.as("ada"), g.as("eve")
		must(t, g.Store.RememberNames(t.Context(), []string{wait.For(t, met, "ada"), wait.For(t, met, "eve")}))
		for _, signer := range []string{"a", "b"} {
			ada.request("1", "nonce_allocate", `["`+signer+`"]`)
			ada.wantResult("1")
			eve.request("1", "nonce_allocate", `["`+signer+`"]`)
			eve.wantResult("1")
		}
		for name, want := range map[string]map[string][2]any{
			"ada": {"a": {"ada", nil}}, "eve": {"a": {nil, "eve"}},
			"marker": {"a": {"ada", "eve"}, "b": {nil, nil}}, "mender": {"a": {"ada", "eve"}, "b": {nil, nil}}, "admin": {"a": {"ada", "eve"}, "b": {nil, nil}},
		} {
			c := g.as(name)
			for signer, holders := range want {
				c.request("1", "nonce_list", `["`+signer+`"]`)
				for i, row := range c.wantResult("1")["allocations"].([]any) {
					if got := row.(map[string]any)["holder"]; got != holders[i] {
						t.Errorf("%s: %s is told that nonce %d of %s is held by %v, want %v", mode, name, i, signer, got, holders[i])
					}
				}
			}
		}
	}
}
