package main

import (
	"reflect"
	"testing"

	"noncegate/chain"
)

func TestChainsAreNamedWithTheirNodes(t *testing.T) {
	c := ChainConfig{
		Chain:         []string{"eip155:1=ws://a:8546", "http://b/?key=x=y", "eip155:10=https://c"},
		ChainFinality: []string{"finalized", "eip155:10=64"},
		ChainWindow:   []string{"16", "eip155:1:0x52*=64", "8"},
	}
	list, err := c.Chains()
	if err != nil {
		t.Fatal(err)
	}
	want := []ChainNodes{{ID: "eip155:1", Nodes: []string{"ws://a:8546", "http://b/?key=x=y"}}, {ID: "eip155:10", Nodes: []string{"https://c"}}}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("got %v, want %v", list, want)
	}
	for id, want := range map[string]int{"eip155:1": 0, "eip155:10": 64} {
		if got, err := c.finality(id); got != want || err != nil {
			t.Errorf("finality of %s: got %d, %v, want %d", id, got, err, want)
		}
	}
	all, of, err := c.windows()
	if err != nil || all != 8 || !reflect.DeepEqual(of, []chain.WindowOf{{Pattern: "eip155:1:0x52*", Window: 64}}) {
		t.Errorf("got %d, %v, %v", all, of, err)
	}
}
