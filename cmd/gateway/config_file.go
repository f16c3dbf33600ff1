package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// given is a value as it stands in the configuration file.
type given struct {
	text string
	line int
}

// settingsFile resolves flags from the YAML file that --config names. It reads
// the file at the first flag it is asked for, when the command line and the
// environment are already known. One parse, one settingsFile.
type settingsFile struct {
	read   bool
	path   string
	values map[string]given // by flag name
}

var _ kong.Resolver = (*settingsFile)(nil)

// Validate implements kong.Resolver; unknown keys are found when the file is
// read.
func (f *settingsFile) Validate(*kong.Application) error { return nil }

// Resolve returns what the file says of a flag that the command line does not
// mention, unless the environment has it: kong would let the file win.
func (f *settingsFile) Resolve(kctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if err := f.load(kctx); err != nil {
		return nil, err
	}
	v, ok := f.values[flag.Name]
	if _, env := environment(flag); env || !ok {
		return nil, nil
	}
	return v.text, nil
}

// load reads the file that the selected command's --config names, if any.
func (f *settingsFile) load(kctx *kong.Context) error {
	if f.read {
		return nil
	}
	f.read = true
	if flag := flagNamed(kctx.Flags(), "config"); flag != nil {
		f.path = kctx.FlagValue(flag).(string)
	}
	if f.path == "" {
		return nil
	}
	data, err := os.ReadFile(f.path)
	if err == nil {
		f.values, err = parseSettings(data)
	}
	if err == nil {
		err = f.refuseUnknown(kctx.Model)
	}
	if err != nil {
		return &settingError{flag: "config", rule: f.describe(err)}
	}
	return nil
}

// describe names the file in errors that do not.
func (f *settingsFile) describe(err error) string {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return f.path + ": " + err.Error()
}

// refuseUnknown allows the flags of every command with --config, so that serve
// and migrate can share one file.
func (f *settingsFile) refuseUnknown(app *kong.Application) error {
	known := map[string]bool{}
	for _, command := range app.Children {
		if flagNamed(command.Flags, "config") == nil {
			continue
		}
		for _, flag := range command.Flags {
			known[flag.Name] = flag.Name != "config"
		}
	}
	lines := slices.SortedFunc(maps.Keys(f.values), func(a, b string) int {
		return f.values[a].line - f.values[b].line
	})
	for _, key := range lines {
		if !known[key] {
			return fmt.Errorf("line %d: %q is not a setting", f.values[key].line, key)
		}
	}
	return nil
}

func flagNamed(flags []*kong.Flag, name string) *kong.Flag {
	i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return flags[i]
}

// origin tells where a setting that is not on the command line came from, as
// the end of a sentence; "" for the command line and for defaults.
func (f *settingsFile) origin(kctx *kong.Context, name string) string {
	for _, p := range kctx.Path {
		if p.Flag != nil && p.Flag.Name == name && !p.Resolved {
			return ""
		}
	}
	if flag := flagNamed(kctx.Flags(), name); flag != nil {
		if env, ok := environment(flag); ok {
			return " (from " + env + ")"
		}
	}
	if v, ok := f.values[name]; ok {
		return fmt.Sprintf(" (from %s, line %d)", f.path, v.line)
	}
	return ""
}

// environment returns the variable that sets the flag, if there is one.
func environment(flag *kong.Flag) (string, bool) {
	for _, env := range flag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return env, true
		}
	}
	return "", false
}

// yamlWords makes errors of the library ones for people who know no Go.
var yamlWords = strings.NewReplacer("yaml: ", "", "unmarshal errors:", "", "map[string]yaml.Node", "lines of SETTING: VALUE")

// parseSettings reads one flat YAML mapping. Scalars are taken as they are
// written, never as YAML would type them: on stays on. A list is the same as
// its items joined by commas.
func parseSettings(data []byte) (map[string]given, error) {
	var nodes map[string]yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&nodes); {
	case err == io.EOF:
		return nil, nil
	case err != nil:
		return nil, errors.New(sentenceOf(errors.New(yamlWords.Replace(err.Error()))))
	case dec.Decode(new(yaml.Node)) != io.EOF:
		return nil, errors.New("must hold one YAML document")
	}
	values := make(map[string]given, len(nodes))
	for name, node := range nodes {
		items := []*yaml.Node{&node}
		if node.Kind == yaml.SequenceNode {
			items = node.Content
		}
		var texts []string
		for _, item := range items {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, fmt.Errorf("line %d: %s needs a value or a list of values", node.Line, name)
			}
			texts = append(texts, item.Value)
		}
		values[name] = given{text: strings.Join(texts, ","), line: node.Line}
	}
	return values, nil
}
