package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

// change carries out a line of testdata/histories.txt.
func change(h *History, line string) error {
	path, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
	names := strings.Split(path, ".")
	var into any = h
	switch {
	case names[0] == "stored":
		into, names = &h.Final.Signers[0], names[1:]
	case names[0] == "row":
		into, names = element(&h.Final.Signers[0].Rows, names[1:], value)
	case names[0] == "calls":
		into, names = element(&h.Calls, names[1:], value)
	case names[0] == "losses" && len(names) > 1:
		into, names = element(&h.Losses, names[1:], value)
	}
	if into == nil {
		return nil
	}
	for _, name := range slices.Backward(names) {
		value = fmt.Sprintf("{%q: %s}", name, value)
	}
	return json.Unmarshal([]byte(value), into) // what it does not name stays
}

// element is the one of a list that a path begins with, and the rest of the path; without any, it was taken out.
func element[T any](list *[]T, path []string, value string) (any, []string) {
	i, err := strconv.Atoi(path[0])
	if err != nil {
		panic(err)
	}
	if len(path) == 1 && value == "null" {
		*list = slices.Delete(*list, i, i+1)
		return nil, nil
	}
	if i == len(*list) {
		*list = append(*list, *new(T))
	}
	return &(*list)[i], path[1:]
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
			h := w.end()
			for _, line := range this[2:] {
				expect.Must(t, change(h, line))
			}
			r := check(h)
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
