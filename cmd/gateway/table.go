package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"time"
)

// table aligns what commands print.
type table struct{ *tabwriter.Writer }

func columns(w io.Writer) table { return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// row prints cells beside each other. What is empty, or is not there, is a dash.
func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = cmp.Or(cell(c), "-")
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

// list prints items below a heading, whose words have tabs between, each with its cells.
func list[T any](w io.Writer, heading string, items []T, cells func(*T) []any) table {
	t := columns(w)
	fmt.Fprintln(t, heading)
	for i := range items {
		t.row(cells(&items[i])...)
	}
	return t
}

func cell(v any) string {
	if at, ok := v.(time.Time); ok {
		if at.IsZero() {
			return ""
		}
		return at.UTC().Format(time.RFC3339)
	}
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer {
		if p.IsNil() {
			return ""
		}
		v = p.Elem().Interface()
	}
	return fmt.Sprint(v)
}
