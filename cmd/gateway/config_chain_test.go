package main

import (
	"reflect"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/test/lab/expect"
)

func TestChainsAreNamedWithTheirNodes(t *testing.T) {
	c := ChainConfig{
		Chain:         []string{"eip155:1=ws://a:8546", "http://b/?key=x=y", "eip155:10=https://c"},
		ChainFinality: []string{"finalized", "eip155:10=64"},
		ChainWindow:   []string{"16", "eip155:1:0x52*=64", "8"},
	}
	list, err := c.Chains()
	expect.Must(t, err)
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

// chainSettings are the lists of ChainConfig that a command line made.
type chainSettings struct{ chain, finality, window []string }

func TestAListIsLinesOrOneTextAndEachPlaceReplacesWeakerOnes(t *testing.T) {
	two := chainSettings{
		chain:    []string{"eip155:1=ws://a:8546", "https://b", "eip155:10=https://c"},
		finality: []string{"finalized", "eip155:10=64"},
		window:   []string{"8", "eip155:1:0x5290*=64"},
	}
	const weaker = "chain: eip155:5=http://file\nchain-window: 5\n"
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		args []string
		want chainSettings
	}{
		"a line a chain": {file: "chain:\n  - eip155:1=ws://a:8546,https://b\n  - eip155:10=https://c\n" +
			"chain-finality:\n  - finalized\n  - eip155:10=64\nchain-window: [8, 'eip155:1:0x5290*=64']\n", want: two},
		"a line a node": {file: "chain:\n  - eip155:1=ws://a:8546\n  - https://b\n  - eip155:10=https://c\n" +
			"chain-finality: [finalized, eip155:10=64]\nchain-window: [8, \"eip155:1:0x5290*=64\"]\n", want: two},
		"one text": {file: "chain: eip155:1=ws://a:8546, https://b, eip155:10=https://c\n" +
			"chain-finality: finalized,eip155:10=64\nchain-window: 8,eip155:1:0x5290*=64\n", want: two},
		"the environment": {env: map[string]string{
			"CHAIN":          "eip155:1=ws://a:8546,https://b,eip155:10=https://c",
			"CHAIN_FINALITY": "finalized,eip155:10=64", "CHAIN_WINDOW": "8,eip155:1:0x5290*=64",
		}, want: two},
		"the environment over the file": {file: weaker, env: map[string]string{"CHAIN": "eip155:6=http://environment"},
			want: chainSettings{[]string{"eip155:6=http://environment"}, []string{"finalized"}, []string{"5"}}},
		"each mention of a flag adds to it": {file: weaker, env: map[string]string{"CHAIN": "eip155:6=http://environment"},
			args: []string{"--chain=eip155:1=ws://a:8546,https://b", "--chain", "eip155:10=https://c"},
			want: chainSettings{two.chain, []string{"finalized"}, []string{"5"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range c.env {
				t.Setenv("NONCEGATE_"+variable, value)
			}
			o := runArgs(t, append([]string{"serve", "--config", settings(t, c.file)}, c.args...)...)
			if o.code != exitOK {
				t.Fatalf("exit %d: %s", o.code, o.stderr)
			}
			for i := range o.cfg.Chain {
				o.cfg.Chain[i] = strings.TrimSpace(o.cfg.Chain[i]) // as Chains does
			}
			if got := (chainSettings{o.cfg.Chain, o.cfg.ChainFinality, o.cfg.ChainWindow}); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
