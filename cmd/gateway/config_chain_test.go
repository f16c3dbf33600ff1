package main

import (
	"reflect"
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

func chainSettingsOf(t *testing.T, args ...string) chainSettings {
	t.Helper()
	o := runArgs(t, append([]string{"serve"}, args...)...)
	if o.code != exitOK {
		t.Fatalf("%q: exit %d: %s", args, o.code, o.stderr)
	}
	return chainSettings{o.cfg.Chain, o.cfg.ChainFinality, o.cfg.ChainWindow}
}

var twoChains = chainSettings{
	chain:    []string{"eip155:1=ws://a:8546", "https://b", "eip155:10=https://c"},
	finality: []string{"finalized", "eip155:10=64"},
	window:   []string{"8", "eip155:1:0x5290*=64"},
}

func TestAListOfTheFileMayBeLinesOrOneText(t *testing.T) {
	for name, text := range map[string]string{
		"a line a chain": "chain:\n  - eip155:1=ws://a:8546,https://b\n  - eip155:10=https://c\n" +
			"chain-finality:\n  - finalized\n  - eip155:10=64\nchain-window: [8, 'eip155:1:0x5290*=64']\n",
		"a line a node": "chain:\n  - eip155:1=ws://a:8546\n  - https://b\n  - eip155:10=https://c\n" +
			"chain-finality: [finalized, eip155:10=64]\nchain-window: [8, \"eip155:1:0x5290*=64\"]\n",
		"one text": "chain: eip155:1=ws://a:8546, https://b, eip155:10=https://c\nchain-finality: finalized,eip155:10=64\nchain-window: 8,eip155:1:0x5290*=64\n",
	} {
		if got := chainSettingsOf(t, "--config", settings(t, text)); !reflect.DeepEqual(got, twoChains) {
			t.Errorf("%s: got %v, want %v", name, got, twoChains)
		}
	}
}

func TestAListMayComeFromTheEnvironment(t *testing.T) {
	t.Setenv("NONCEGATE_CHAIN", "eip155:1=ws://a:8546,https://b,eip155:10=https://c")
	t.Setenv("NONCEGATE_CHAIN_FINALITY", "finalized,eip155:10=64")
	t.Setenv("NONCEGATE_CHAIN_WINDOW", "8,eip155:1:0x5290*=64")
	if got := chainSettingsOf(t); !reflect.DeepEqual(got, twoChains) {
		t.Errorf("got %v, want %v", got, twoChains)
	}
}

func TestEachMentionOfAListAddsToItAndAllOfThemReplaceWhatIsWeaker(t *testing.T) {
	path := settings(t, "chain: eip155:5=http://file\nchain-window: 5\n")
	t.Setenv("NONCEGATE_CHAIN", "eip155:6=http://environment")
	got := chainSettingsOf(t, "--config", path, "--chain=eip155:1=ws://a:8546,https://b", "--chain", "eip155:10=https://c")
	want := chainSettings{chain: twoChains.chain, finality: []string{"finalized"}, window: []string{"5"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := chainSettingsOf(t, "--config", path).chain; !reflect.DeepEqual(got, []string{"eip155:6=http://environment"}) {
		t.Errorf("the environment over the file: got %v", got)
	}
}
