package ethereum

import (
	"bytes"
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"noncegate/chain"
	"noncegate/wire"
)

//go:embed answers.yaml
var answersFile []byte

// answers is the table of what nodes say, compiled.
type answers struct {
	groups  []answerGroup
	limited *regexp.Regexp
	noBlock *regexp.Regexp
	noWay   *regexp.Regexp // the node does not have the method
}

type answerGroup struct {
	name    string
	class   chain.Class
	missing bool
	later   bool
	text    *regexp.Regexp
	numbers bool // text has the nonce of the transaction and the next one, which decide
}

// The file, as it is written.
type (
	answersYAML struct {
		Sources  map[string]string `yaml:"sources"`
		Answers  []groupYAML       `yaml:"answers"`
		Limited  plainYAML         `yaml:"limited"`
		NoBlock  plainYAML         `yaml:"no_block"`
		NoMethod plainYAML         `yaml:"no_method"`
	}
	groupYAML struct {
		Group    string              `yaml:"group"`
		Class    string              `yaml:"class"`
		Missing  bool                `yaml:"missing"`
		Later    bool                `yaml:"later"`
		Patterns []string            `yaml:"patterns"`
		Examples map[string][]string `yaml:"examples"`
	}
	plainYAML struct {
		Patterns []string `yaml:"patterns"`
		Examples []string `yaml:"examples"`
	}
)

// knownAnswers is the table that is built in. A mistake in it is one of the program: it panics.
var knownAnswers = sync.OnceValue(func() *answers {
	file := readAnswers()
	a := &answers{limited: oneOf(file.Limited.Patterns), noBlock: oneOf(file.NoBlock.Patterns), noWay: oneOf(file.NoMethod.Patterns)}
	for _, g := range file.Answers {
		a.groups = append(a.groups, answerGroup{
			name: g.Group, class: classOf(g.Class), missing: g.Missing, later: g.Later, text: oneOf(g.Patterns), numbers: g.Class == byNumbers,
		})
	}
	return a
})

func readAnswers() *answersYAML {
	file := new(answersYAML)
	dec := yaml.NewDecoder(bytes.NewReader(answersFile))
	dec.KnownFields(true)
	if err := dec.Decode(file); err != nil {
		panic("answers.yaml: " + err.Error())
	}
	return file
}

func classOf(word string) chain.Class {
	for c := chain.Unknown; c <= chain.NotReached; c++ {
		if c.String() == word || word == byNumbers {
			return c
		}
	}
	panic("answers.yaml: there is no class " + word)
}

// oneOf makes one expression of several, without regard to case.
func oneOf(patterns []string) *regexp.Regexp {
	return regexp.MustCompile("(?i)(?:" + strings.Join(patterns, ")|(?:") + ")")
}

// byNumbers is the class of a group whose texts have two numbers: the nonce of the transaction
// (a group of the pattern whose name begins with tx) and the one that is next (with next).
const byNumbers = "numbers"

// group returns the group of a text; nil: no group has it.
func (a *answers) group(text string) *answerGroup {
	for i := range a.groups {
		if a.groups[i].text.MatchString(text) {
			return &a.groups[i]
		}
	}
	return nil
}

// grade is what a refusal of eth_sendRawTransaction means.
type grade struct {
	class          chain.Class
	missing, later bool
	known          bool // the table has the text
}

// caution orders classes by what is believed when a refusal says two things.
var caution = []chain.Class{chain.InPool, chain.Used, chain.Taken, chain.Unknown, chain.Refused, chain.NotReached, chain.Free}

// grade returns what a refusal means. Its message and the texts of its data are looked up, since
// some nodes put the reason there. Of several the most cautious one counts.
func (a *answers) grade(e *RPCError) grade {
	best := grade{}
	for _, text := range append([]string{e.Message}, textsOf(e.Data)...) {
		g := a.gradeText(text)
		if g.known && (!best.known || slices.Index(caution, g.class) < slices.Index(caution, best.class)) {
			best = g
		}
	}
	return best
}

func (a *answers) gradeText(text string) grade {
	switch g := a.group(text); {
	case g == nil && a.limited.MatchString(text):
		return grade{class: chain.NotReached, later: true, known: true}
	case g == nil:
		return grade{}
	case g.numbers:
		return compareNonces(g.text, text)
	default:
		return grade{class: g.class, missing: g.missing, later: g.later, known: true}
	}
}

// compareNonces reads the two nonces of a text: one below the next is used, one above it has to
// wait for a lower one.
func compareNonces(pattern *regexp.Regexp, text string) grade {
	var tx, next uint64
	found := pattern.FindStringSubmatch(text)
	for i, name := range pattern.SubexpNames() {
		n, err := strconv.ParseUint(found[i], 10, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "tx"):
			tx = n
		case strings.HasPrefix(name, "next"):
			next = n
		}
	}
	switch {
	case tx < next:
		return grade{class: chain.Used, known: true}
	case tx > next:
		return grade{class: chain.Refused, missing: true, later: true, known: true}
	}
	return grade{known: true} // it should have been taken: unknown
}

// Bounds of what is looked at of the data of a refusal.
const (
	maxDataTexts = 16
	maxDataDepth = 4
)

// textsOf are the texts in the data of a refusal: itself, or those in it.
func textsOf(data []byte) (texts []string) {
	var value any
	if len(data) == 0 || wire.Unmarshal(data, &value) != nil {
		return nil
	}
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if depth > maxDataDepth || len(texts) >= maxDataTexts {
			return
		}
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case []any:
			for _, e := range v {
				walk(e, depth+1)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key], depth+1)
			}
		}
	}
	walk(value, 0)
	return texts
}
