package table

import (
	"errors"
	"strings"
	"testing"
)

func TestATableIsWrittenInEachForm(t *testing.T) {
	table := Table{Head: []string{"what", "p99 ms", "notes"}, Rows: [][]string{{"a side – far", "1.25", ""}, {"b", "10.00", "void"}}}
	var left, figures, markdown strings.Builder
	if err := errors.Join(table.Text(&left, Left), table.Text(&figures, Figures), table.Markdown(&markdown)); err != nil {
		t.Fatal(err)
	}
	for _, form := range []struct{ name, got, want string }{
		{"left", left.String(), "" +
			"what          p99 ms  notes\n" +
			"a side – far  1.25\n" +
			"b             10.00   void\n"},
		{"figures", figures.String(), "" +
			"what          p99 ms  notes\n" +
			"a side – far    1.25\n" +
			"b              10.00   void\n"},
		{"markdown", markdown.String(), "" +
			"| what | p99 ms | notes |\n| --- | --- | --- |\n" +
			"| a side – far | 1.25 |  |\n| b | 10.00 | void |\n"},
	} {
		if form.got != form.want {
			t.Errorf("%s:\n%s\nwant\n%s", form.name, form.got, form.want)
		}
	}
}
