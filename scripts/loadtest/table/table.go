// Package table writes cells in columns: as text for a terminal, and in Markdown.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is a heading and rows of cells that are written already. Each row has a
// cell for each of Head.
type Table struct {
	Title string // of the HTML report alone
	Head  []string
	Rows  [][]string
}

// Align is where cells stand in their column.
type Align int

// The ways to align columns in text.
const (
	Left    Align = iota
	Figures       // the first column to the left, the others, which are figures, to the right
)

// Text writes the table with two spaces between columns, and no space at the end
// of a line.
func (t Table) Text(w io.Writer, align Align) error {
	rows := append([][]string{t.Head}, t.Rows...)
	widths := make([]int, len(t.Head))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			width := -widths[i]
			if align == Figures && i > 0 {
				width = widths[i]
			}
			fmt.Fprintf(&line, "%*s  ", width, cell)
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// Markdown writes the table as Markdown.
func (t Table) Markdown(w io.Writer) error {
	var text strings.Builder
	head := [][]string{t.Head, slices.Repeat([]string{"---"}, len(t.Head))}
	for _, row := range append(head, t.Rows...) {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
	}
	_, err := io.WriteString(w, text.String())
	return err
}
