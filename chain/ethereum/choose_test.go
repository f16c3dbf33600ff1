package ethereum

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"noncegate/chain"
)

// named returns a block by a name of branch and number, such as a12. Branch b leaves a
// behind block 10, c behind 5.
func blockNamed(name string) chain.Block {
	var branch string
	var number int64
	if _, err := fmt.Sscanf(name, "%1s%d", &branch, &number); err != nil {
		panic(name)
	}
	if left := map[string]int64{"a": 0, "b": 10, "c": 5}[branch]; number <= left {
		branch = "a"
	}
	return chain.Block{Number: number, Hash: chain.Hash{branch[0], byte(number)}}
}

// tree looks back along the branches of blockNamed.
func tree(head chain.Block, number int64) (chain.Hash, bool) {
	if number > head.Number {
		return chain.Hash{}, false
	}
	return blockNamed(fmt.Sprintf("%c%d", head.Hash[0], number)).Hash, true
}

func unless(text string) string { return strings.TrimPrefix(text, "-") }

func TestTheNewestBlockIsTheOneWithMostVotes(t *testing.T) {
	data, err := os.ReadFile("testdata/choose.tsv")
	must(t, err)
	rows := 0
	for line := range strings.Lines(string(data)) {
		row := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(row) < 3 {
			continue
		}
		rows++
		test := struct{ kept, claims, want string }{unless(row[0]), unless(row[1]), unless(row[2])}
		var kept chain.Block
		if test.kept != "" {
			kept = blockNamed(test.kept)
		}
		var claims []claim
		names := strings.Fields(test.claims)
		for _, name := range names {
			still := strings.TrimSuffix(name, "!")
			claims = append(claims, claim{head: &block{Block: blockNamed(still)}, stale: still != name})
		}
		got := ""
		if i := choose(claims, kept, 3, tree); i >= 0 {
			got = strings.TrimSuffix(names[i], "!")
		}
		if got != test.want {
			t.Errorf("kept %q, claims %q: %q, want %q", test.kept, test.claims, got, test.want)
		}
	}
	if rows < 25 {
		t.Errorf("only %d rows", rows)
	}
}

func TestWhatIsNotKnownOfBranchesIsNotGuessed(t *testing.T) {
	b := newBranches()
	link := func(number byte) chain.Block {
		return chain.Block{Number: int64(number), Hash: chain.Hash{number}, Parent: chain.Hash{number - 1}}
	}
	head := link(20)
	at := func(number int64) string {
		h, ok := b.at(head, number)
		return fmt.Sprint(h[0], ok)
	}
	for number, want := range map[int64]string{21: "0 false", 20: "20 true", 19: "19 true", 18: "0 false", 10: "0 false"} {
		if got := at(number); got != want {
			t.Errorf("block %d is %s, want %s", number, got, want)
		}
	}
	b.add(link(19))
	b.say(head.Hash, link(10))
	for number, want := range map[int64]string{18: "18 true", 17: "0 false", 10: "10 true", 9: "0 false"} {
		if got := at(number); got != want {
			t.Errorf("then block %d is %s, want %s", number, got, want)
		}
	}
	b.forget(20)
	if got := at(18); got != "0 false" {
		t.Errorf("after forgetting, block 18 is %s", got)
	}
	for i := range maxBranches + 10 {
		b.add(chain.Block{Number: 5, Hash: chain.Hash{byte(i), byte(i >> 8), 1}})
		b.say(chain.Hash{byte(i), byte(i >> 8), 2}, link(3))
	}
	if len(b.known) > maxBranches || len(b.below) > maxBranches {
		t.Errorf("%d and %d are remembered, want %d at most", len(b.known), len(b.below), maxBranches)
	}
}
