package ethereum

import (
	"fmt"
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

func TestTheNewestBlockIsTheOneWithMostVotes(t *testing.T) {
	for _, test := range []struct{ kept, claims, want string }{
		{"", "", ""},
		{"", "a1", "a1"},
		{"a12", "a12 a12", "a12"},
		{"a12", "a13 a12", "a13"},
		{"a12", "a12 a13 a12", "a13"},
		{"a12", "a12 a15 a12", "a15"},    // within the lag all vote for it
		{"a12", "a12 a16 a12", "a12"},    // beyond it is alone
		{"a12", "a12 a40 a12", "a12"},    // so far ahead too
		{"a12", "a13 b14 a13", "a13"},    // the branch of most
		{"a12", "b13 b14 a13", "b14"},    // also against the one that was followed
		{"a12", "a13 b14", "a13"},        // a tie: the one that was followed
		{"a12", "b14 a13", "a13"},        // in whatever order
		{"a12", "a13! b14", "b14"},       // unless it stands still
		{"a12", "a12! a32", "a32"},       // a node that lags is left
		{"a12", "a12 a32", "a32"},        // the higher one of one branch
		{"", "a12 a32", "a32"},           // also at the start
		{"", "a12 b13", "b13"},           //
		{"a12", "a11", ""},               // behind is no reorganization
		{"a12", "a11 b11 b11", ""},       // nor is a branch that is not as long
		{"a12", "a11 b12", "b12"},        // until it is
		{"a12", "b12 b12 a12", "b12"},    // of most
		{"a12", "c12 c13 c14", "c14"},    // a deep one
		{"a12", "c13 b13 a13", "a13"},    // three of three: the one that was followed
		{"b12", "c13 b13 a13", "b13"},    //
		{"a12", "b13 c14", "c14"},        // neither was followed: the higher one
		{"a12", "b13 c13", "b13"},        // the order of the settings
		{"a12", "a13! b13! c13!", "a13"}, // nobody moves
	} {
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
