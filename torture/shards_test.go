//go:build unix

package torture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/torture/history"
)

// shortShards is the campaign of make test for signers in shards.
var shortShards = []shortRun{
	{1, "on", []string{"kill", "late-commit", "move-shards"}},
	{2, "on", []string{"pause", "cut-reply", "dump"}},
	{3, "off", []string{"partition", "cut-websocket", "basic-again"}},
	{4, "on", []string{"silent-node", "drain", "join-leave"}},
	// Alone, because all clusters share the server.
	{5, "on", []string{"postgres-crash", "row-lock"}},
	{6, "on", []string{"backend", "store-clock"}},
}

func TestHistoriesOfShardsKeepEveryRule(t *testing.T) {
	lookAtSources(t)
	inTurn(t, shortShards, survivesInShards)
}

func survivesInShards(t *testing.T, seed uint64, forward string, names []string) {
	t.Helper()
	res := judged(t, Plan{Seed: seed, Options: Options{Heart: NewHeart, Forward: forward}}, names)
	for _, said := range res.Said {
		if strings.Contains(said, "done to 0 commits") {
			t.Errorf("a fault met nothing: %s", said)
		}
	}
}

func TestHistoriesOfShardsBesideAChainKeepEveryRule(t *testing.T) {
	lookAtSources(t)
	judged(t, Plan{Seed: 1, Options: Options{Heart: NewHeart, Chain: true, Forward: "on"}}, []string{"node-behind", "pause"})
}

func TestAGatewayThatIsWrongAboutShardsIsCaught(t *testing.T) {
	lookAtSources(t)
	for name, rule := range map[string]history.Rule{
		"version not compared":                history.OneHolder,
		"request id taken as new":             history.OneAnswer,
		"blind retry after an unknown commit": history.RefusedDone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, ShardPlants, Options{Heart: NewHeart, Postgres: pgNew}, name, rule)
		})
	}
}

func TestFaultsThatTakeShardsTakeTheNewHeart(t *testing.T) {
	for _, f := range ShardFaults {
		if _, err := Run(t.Context(), Plan{Faults: []Fault{f}}); err == nil || !strings.Contains(err.Error(), f.Name+" takes signers in shards") {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	if _, err := Run(t.Context(), Plan{Options: Options{Heart: NewHeart, Engine: true}}); err == nil {
		t.Error("the performance engine was taken with the new heart")
	}
	if _, err := StartPostgres(t.Context(), "none"); err == nil {
		t.Error("a heart that is not there was taken")
	}
}

// The faults of commits know one by its text.
func TestACommitOfShardsIsKnownByItsText(t *testing.T) {
	module, _, err := roots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module, "nonce/postgres/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found += strings.Count(string(text), shardCommit)
	}
	if found != 1 {
		t.Errorf("%q occurs %d times, want once", shardCommit, found)
	}
}
