package history

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

// put sets what is at a path in a tree of JSON: null takes it out, an object is merged into what is there, and behind the end of a list
// it is added.
func put(tree any, path []string, value any) any {
	if len(path) == 0 {
		for name, v := range asMap(value) {
			tree = put(tree, []string{name}, v)
		}
		if asMap(value) == nil || tree == nil {
			return value
		}
		return tree
	}
	if list, ok := tree.([]any); ok {
		i, err := strconv.Atoi(path[0])
		switch {
		case err != nil:
			panic(err)
		case i == len(list):
			return append(list, value)
		case value == nil && len(path) == 1:
			return slices.Delete(list, i, i+1)
		}
		list[i] = put(list[i], path[1:], value)
		return list
	}
	object := asMap(tree)
	if object == nil {
		object = make(map[string]any)
	}
	if value == nil && len(path) == 1 {
		delete(object, path[0])
	} else {
		object[path[0]] = put(object[path[0]], path[1:], value)
	}
	return object
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// changed is the history with lines of testdata/histories.txt carried out.
func changed(t *testing.T, h *History, lines []string) *History {
	t.Helper()
	text, err := json.Marshal(h)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	short := strings.NewReplacer("row.", "final.signers.0.rows.", "stored", "final.signers.0")
	for _, line := range lines {
		path, text, _ := strings.Cut(strings.TrimSpace(line), " = ")
		var value any
		if err == nil {
			err = json.Unmarshal([]byte(text), &value)
		}
		tree = put(tree, strings.Split(short.Replace(path), "."), value)
	}
	if err == nil {
		text, err = json.Marshal(tree)
	}
	after := new(History)
	if err == nil {
		err = json.Unmarshal(text, after)
	}
	expect.Must(t, err)
	return after
}

func check(h *History) *Report { return Check(h, Limits{MaxOverdue: time.Second}) }

// Each rule finds what it forbids, and nothing else is called wrong.
func TestHistories(t *testing.T) {
	text, err := os.ReadFile("testdata/histories.txt")
	expect.Must(t, err)
	for lines := strings.Split(strings.TrimSpace(string(text)), "\n"); len(lines) > 0; {
		end := 1
		for end < len(lines) && strings.HasPrefix(lines[end], "\t") {
			end++
		}
		this := lines[:end]
		lines = lines[end:]
		name, want, _ := strings.Cut(this[0], ": ")
		if len(this) == 1 { // a comment, or empty
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for step := range strings.SplitSeq(this[1], ";") {
				words := strings.Fields(step)
				w.do(words[0], words[1:]...)
			}
			r := check(changed(t, w.end(), this[2:]))
			if want == "nothing" && !r.OK() {
				t.Error(r.Violations)
			}
			for _, rule := range r.Rules() {
				want = strings.Replace(want, string(rule), "", 1)
			}
			if want != "nothing" && strings.Trim(want, ", ") != "" {
				t.Errorf("found %v, want %q", r.Violations, this[0])
			}
		})
	}
}

func TestLongWhatAGatewayThatIsRightDoesIsNeverCalledWrong(t *testing.T) {
	unknown := 0
	for seed := range uint64(200) {
		r := check(random(seed))
		for _, v := range r.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
		if t.Failed() {
			return
		}
		unknown += r.Unknown
	}
	if unknown < 1000 {
		t.Errorf("only %d calls had an unknown outcome", unknown)
	}
}

func TestTooFewCallsAndAModelThatRunsOutOfTimeAreFailures(t *testing.T) {
	w := newWorld()
	w.allocate("")
	if got := Check(w.end(), Limits{MinAcknowledged: 2}).Rules(); !slices.Equal(got, []Rule{Void}) {
		t.Errorf("found %v, want %q", got, Void)
	}
	if got := Check(random(1), Limits{MaxOverdue: time.Second, ModelTimeout: time.Nanosecond}).Rules(); !slices.Equal(got, []Rule{Undecided}) {
		t.Errorf("found %v, want %q", got, Undecided)
	}
}

func TestAHistoryIsSavedWithItsPicture(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	w.allocate("")
	w.do("repeat")
	path := filepath.Join(dir, "history.json")
	expect.Must(t, w.end().Save(path))
	text, err := os.ReadFile(path)
	again := new(History)
	expect.Must(t, errors.Join(err, json.Unmarshal(text, again)))
	r := check(again)
	expect.Must(t, r.SavePictures(dir))
	pictures, err := filepath.Glob(filepath.Join(dir, "*.html"))
	var b strings.Builder
	if r.Print(&b); err != nil || len(pictures) != 1 || !strings.Contains(b.String(), "VIOLATION one holder: s: nonce 0 attempt 1") {
		t.Errorf("pictures %v %v, and the report says %s", pictures, err, &b)
	}
}
