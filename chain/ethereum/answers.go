package ethereum

import (
	"bytes"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"noncegate/chain"
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
	text    *regexp.Regexp
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
		Patterns []string            `yaml:"patterns"`
		Examples map[string][]string `yaml:"examples"`
	}
	plainYAML struct {
		Patterns []string `yaml:"patterns"`
		Examples []string `yaml:"examples"`
	}
)

// knownAnswers reads the table that is built in, once.
var knownAnswers = sync.OnceValues(func() (*answers, error) {
	file, err := readAnswers(answersFile)
	if err != nil {
		return nil, err
	}
	return file.compile()
})

func readAnswers(data []byte) (*answersYAML, error) {
	file := new(answersYAML)
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(file); err != nil {
		return nil, fmt.Errorf("answers.yaml: %w", err)
	}
	return file, nil
}

func (f *answersYAML) compile() (*answers, error) {
	a := new(answers)
	for _, g := range f.Answers {
		class, err := parseClass(g.Class)
		if err != nil {
			return nil, fmt.Errorf("answers.yaml: group %q: %w", g.Group, err)
		}
		text, err := oneOf(g.Patterns)
		if err != nil {
			return nil, fmt.Errorf("answers.yaml: group %q: %w", g.Group, err)
		}
		a.groups = append(a.groups, answerGroup{name: g.Group, class: class, missing: g.Missing, text: text})
	}
	for _, p := range []struct {
		to   **regexp.Regexp
		name string
		from []string
	}{
		{&a.limited, "limited", f.Limited.Patterns},
		{&a.noBlock, "no_block", f.NoBlock.Patterns},
		{&a.noWay, "no_method", f.NoMethod.Patterns},
	} {
		text, err := oneOf(p.from)
		if err != nil {
			return nil, fmt.Errorf("answers.yaml: %s: %w", p.name, err)
		}
		*p.to = text
	}
	return a, nil
}

// classes has the classes by their words.
func parseClass(word string) (chain.Class, error) {
	all := []chain.Class{chain.Unknown, chain.InPool, chain.Taken, chain.Used, chain.Free}
	i := slices.IndexFunc(all, func(c chain.Class) bool { return c.String() == word })
	if i < 0 {
		return 0, fmt.Errorf("class must be one of %v, is %q", all, word)
	}
	return all[i], nil
}

// oneOf makes one expression of several, without regard to case.
func oneOf(patterns []string) (*regexp.Regexp, error) {
	if len(patterns) == 0 {
		return nil, fmt.Errorf("patterns must not be empty")
	}
	return regexp.Compile("(?i)(?:" + strings.Join(patterns, ")|(?:") + ")")
}

// group returns the group of a refusal of eth_sendRawTransaction; nil: nobody knows what
// it means.
func (a *answers) group(text string) *answerGroup {
	for i := range a.groups {
		if a.groups[i].text.MatchString(text) {
			return &a.groups[i]
		}
	}
	return nil
}
