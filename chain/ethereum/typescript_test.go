package ethereum

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/test/lab/expect"
)

const typescript = "../../sdk/typescript/"

// The package for TypeScript has the table of answers as source text, and what Go makes of every example and dialect as a
// test; -update writes both.
func TestTheTypeScriptPackageHasThisTable(t *testing.T) {
	file := readAnswers()
	type row struct {
		Class    string   `json:"class"`
		Missing  bool     `json:"missing,omitempty"`
		Later    bool     `json:"later,omitempty"`
		Patterns []string `json:"patterns"`
	}
	var rows []row
	for _, g := range file.Answers {
		rows = append(rows, row{g.Class, g.Missing, g.Later, g.Patterns})
	}
	rows = append(rows, row{Class: chain.NotReached.String(), Later: true, Patterns: file.Limited.Patterns})
	var order []string
	for _, class := range caution {
		order = append(order, class.String())
	}
	text := "// Written from chain/ethereum/answers.yaml by its test (go test ./chain/ethereum -run TypeScript -update).\n" +
		"// The first row with a pattern that is found in a text decides.\n" +
		"export const answers: { class: string; missing?: boolean; later?: boolean; patterns: string[] }[] = " + indented(t, rows) + "\n\n" +
		"/** Of several texts of one refusal, the class that comes first here counts. */\nexport const caution = " + indented(t, order) + "\n"
	same(t, typescript+"src/answers.ts", text)
	same(t, typescript+"test/answers.json", indented(t, grades(t, file))+"\n")
}

// graded is a refusal and what Go makes of it.
type graded struct {
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
	Class   string          `json:"class"`
	Missing bool            `json:"missing,omitempty"`
	Later   bool            `json:"later,omitempty"`
}

func grades(t *testing.T, file *answersYAML) (all []graded) {
	t.Helper()
	table := knownAnswers()
	add := func(message string, data []byte) {
		g := table.grade(&RPCError{Message: message, Data: data})
		all = append(all, graded{message, data, g.class.String(), g.missing, g.later})
	}
	for _, g := range file.Answers {
		for _, client := range slices.Sorted(maps.Keys(g.Examples)) {
			for _, text := range g.Examples[client] {
				add(text, nil)
			}
		}
	}
	for _, text := range file.Limited.Examples {
		add(text, nil)
	}
	dialects, err := os.ReadFile("testdata/dialects.tsv")
	must(t, err)
	for line := range strings.Lines(string(dialects)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		_, said, _ := strings.Cut(line, "\t")
		message, data, _ := strings.Cut(said, "\tdata\t")
		add(message, []byte(data))
	}
	return all
}

func indented(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must(t, enc.Encode(v))
	return strings.TrimSpace(out.String())
}

// same compares a file with what it should have, or writes that into it.
func same(t *testing.T, path, want string) {
	t.Helper()
	if expect.Updating() {
		must(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != want {
		t.Errorf("%s is not what answers.yaml makes it (%v): go test ./chain/ethereum -run TypeScript -update", path, err)
	}
}
