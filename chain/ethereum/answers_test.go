package ethereum

import (
	"os"
	"strings"
	"testing"
)

func TestEveryExampleOfTheTableIsFoundByItsOwnGroup(t *testing.T) {
	file, table := readAnswers(), knownAnswers()
	for _, g := range file.Answers {
		for client, texts := range g.Examples {
			if file.Sources[client] == "" {
				t.Errorf("group %q has examples of %q, which is no source", g.Group, client)
			}
			for _, text := range texts {
				switch got := table.group(text); {
				case got == nil:
					t.Errorf("%s: %q is found by no group, want %q", client, text, g.Group)
				case got.name != g.Group:
					t.Errorf("%s: %q is found by %q, want %q", client, text, got.name, g.Group)
				}
			}
		}
	}
	for name, p := range map[string]plainYAML{"limited": file.Limited, "no_block": file.NoBlock, "no_method": file.NoMethod} {
		text := oneOf(p.Patterns)
		for _, example := range p.Examples {
			if !text.MatchString(example) {
				t.Errorf("%s does not find %q", name, example)
			}
		}
	}
}

func TestEveryPatternOfTheTableFindsAnExample(t *testing.T) {
	file := readAnswers()
	used := func(pattern string, examples []string) bool {
		text := oneOf([]string{pattern})
		for _, e := range examples {
			if text.MatchString(e) {
				return true
			}
		}
		return false
	}
	for _, g := range file.Answers {
		var examples []string
		for _, texts := range g.Examples {
			examples = append(examples, texts...)
		}
		for _, p := range g.Patterns {
			if !used(p, examples) {
				t.Errorf("group %q: no example for %q", g.Group, p)
			}
		}
	}
}

// grades are texts of dialects and what they mean: class, missing, later, then the text or the
// whole error in JSON.
func TestDialectsOfChainsAndProvidersAreGraded(t *testing.T) {
	table := knownAnswers()
	data, err := os.ReadFile("testdata/dialects.tsv")
	must(t, err)
	rows := 0
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		rows++
		want, said, _ := strings.Cut(line, "\t")
		refusal := &RPCError{Message: said}
		if message, data, both := strings.Cut(said, "\tdata\t"); both {
			refusal.Message, refusal.Data = message, []byte(data)
		}
		g := table.grade(refusal)
		got := g.class.String()
		if g.missing {
			got = "missing"
		}
		if got != want {
			t.Errorf("%s is %s, want %s", said, got, want)
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows", rows)
	}
}
