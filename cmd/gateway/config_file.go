package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// given is a value as somebody wrote it in the configuration file.
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
	return v, nil
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
		return f.at(v)
	}
	return ""
}

func (f *settingsFile) at(v given) string { return fmt.Sprintf(" (from %s, line %d)", f.path, v.line) }

// environment returns the variable that sets the flag, if there is one.
func environment(flag *kong.Flag) (string, bool) {
	for _, env := range flag.Envs {
		if _, ok := os.LookupEnv(env); ok {
			return env, true
		}
	}
	return "", false
}

// parseSettings reads one flat YAML mapping. Scalars are taken as they are
// written, never as YAML would type them: on stays on. A list is the same as
// its items joined by commas.
func parseSettings(data []byte) (map[string]given, error) {
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, oneLine(err)
	case dec.Decode(&more) != io.EOF:
		return nil, errors.New("must hold one YAML document")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: must be lines of SETTING: VALUE", root.Line)
	}
	values := make(map[string]given, len(root.Content)/2)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if before, twice := values[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s is set already in line %d", key.Line, key.Value, before.line)
		}
		text, ok := scalar(value)
		if !ok {
			return nil, fmt.Errorf("line %d: %s needs a value or a list of values", key.Line, key.Value)
		}
		values[key.Value] = given{text: text, line: key.Line}
	}
	return values, nil
}

func scalar(n *yaml.Node) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return n.Value, n.Tag != "!!null"
	case n.Kind != yaml.SequenceNode:
		return "", false
	}
	items := make([]string, len(n.Content))
	for i, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			return "", false
		}
		items[i] = item.Value
	}
	return strings.Join(items, ","), true
}

// oneLine makes one sentence of the several lines yaml may answer with.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
}

// mappers decode the types that settings have, with sentences of our own.
func (f *settingsFile) mappers() []kong.Option {
	return []kong.Option{
		kong.KindMapper(reflect.String, f.mapper("text", func(s string) (any, error) { return s, nil })),
		kong.KindMapper(reflect.Int, f.mapper("a whole number", func(s string) (any, error) { return strconv.Atoi(s) })),
		kong.KindMapper(reflect.Int64, f.mapper("a whole number", func(s string) (any, error) { return strconv.ParseInt(s, 10, 64) })),
		kong.NamedMapper("list", f.listMapper()), // of flags with type:"list"; arguments of commands are not split
		kong.TypeMapper(reflect.TypeFor[time.Duration](),
			f.mapper("a duration such as 10s or 1m30s", func(s string) (any, error) { return time.ParseDuration(s) })),
	}
}

// listMapper takes texts with commas between, from each mention of the flag.
func (f *settingsFile) listMapper() kong.Mapper {
	one := f.mapper("text", func(s string) (any, error) { return s, nil })
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		text := reflect.New(reflect.TypeFor[string]()).Elem()
		if err := one.Decode(ctx, text); err != nil {
			return err
		}
		for item := range strings.SplitSeq(text.String(), ",") {
			if item = strings.TrimSpace(item); item != "" {
				target.Set(reflect.Append(target, reflect.ValueOf(item)))
			}
		}
		return nil
	})
}

func (f *settingsFile) mapper(what string, parse func(string) (any, error)) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		token := ctx.Scan.Pop()
		if !token.IsValue() && !negativeNumber(token) {
			return errors.New("needs a value")
		}
		var text, from string
		switch v := token.Value.(type) {
		case given:
			text, from = v.text, f.at(v)
		case string:
			text = v
		}
		value, err := parse(text)
		if err != nil {
			return fmt.Errorf("%q is not %s%s", text, what, from)
		}
		target.Set(reflect.ValueOf(value).Convert(target.Type()))
		return nil
	})
}

// negativeNumber reports whether a token that begins with a dash, as flags do, is a
// number or a duration below zero. No flag begins with a digit.
func negativeNumber(token kong.Token) bool {
	text, ok := token.Value.(string)
	digits, dashed := strings.CutPrefix(text, "-")
	digits = strings.TrimPrefix(digits, ".")
	return ok && dashed && digits != "" && '0' <= digits[0] && digits[0] <= '9'
}
