package wire

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"noncegate/test/lab/expect"
)

func TestWarmUpKnowsEveryType(t *testing.T) {
	expect.Must(t, WarmUp())
	var known []string
	for _, m := range messages() {
		known = append(known, reflect.TypeOf(m).Elem().Name())
	}
	notOnTheWire := []string{"Frame", "Call"}
	files, err := filepath.Glob("*.go")
	expect.Must(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		expect.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if _, ok := spec.Type.(*ast.StructType); ok && !slices.Contains(known, spec.Name.Name) && !slices.Contains(notOnTheWire, spec.Name.Name) {
				t.Errorf("%s: messages() does not list %s", file, spec.Name.Name)
			}
			return true
		})
	}
}

func TestNothingElseImportsTheCodecLibrary(t *testing.T) {
	here := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			switch {
			case err != nil:
				return err
			case !strings.HasPrefix(name, "github.com/goccy/go-json"):
			case filepath.Dir(path) == filepath.Join("..", "wire"):
				here++
			default:
				t.Errorf("%s imports %s", path, name)
			}
		}
		return nil
	})
	expect.Must(t, err)
	if here == 0 {
		t.Error("not even this package imports it: the walk saw nothing")
	}
}

func TestElementsBringsOneElementAtATimeAndStopsWhenTold(t *testing.T) {
	stop := errors.New("stop")
	for _, test := range []struct {
		data, want string
		fails      bool
	}{
		{"[]", "", false},
		{` [1, {"a":[2]} ,"x"] `, `1|{"a":[2]}|"x"|`, false},
		{"[1,2,3,4]", "1|2|3|", true}, // stopped
		{"[1,2", "", true},
		{"[1] 2", "", true},
		{`{"a":1}`, "", true},
		{"", "", true},
		{"null", "", true},
	} {
		got := ""
		err := Elements([]byte(test.data), func(i int, element []byte) error {
			got += string(element) + "|"
			if i == 2 && test.fails {
				return stop
			}
			return nil
		})
		if got != test.want || (err != nil) != test.fails {
			t.Errorf("%q: elements %q and %v, want %q", test.data, got, err, test.want)
		}
	}
}
