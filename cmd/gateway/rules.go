package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// helpText is the help of flags that have none in their tag, by the name of the flag or its tag text.
//
//go:embed help.yaml
var helpText []byte

// addHelp gives flags their help. A flag without any, and a text of no flag, is a mistake of this program.
func addHelp(k *kong.Kong) error {
	var texts map[string]string
	if err := yaml.Unmarshal(helpText, &texts); err != nil {
		return fmt.Errorf("help.yaml: %w", err)
	}
	used := map[string]bool{}
	err := kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
		if flag, ok := v.(*kong.Flag); ok && flag.Help == "" {
			key := cmp.Or(flag.Tag.Get("text"), flag.Name)
			if used[key] = true; texts[key] == "" {
				return fmt.Errorf("--%s has no help", flag.Name)
			}
			flag.Help = texts[key]
		}
		return next(nil)
	})
	if err == nil && len(used) != len(texts) {
		err = errors.New("help.yaml has texts of no flag")
	}
	return err
}

// valueRules are the rules of one flag, by the key in its tag. Each returns what is wrong, or "".
var valueRules = map[string]func(flag *kong.Flag, value any, rule string) string{
	"min": func(flag *kong.Flag, value any, least string) string { // with or:"0" besides 0
		n, bound := number(value), boundOf(value, least)
		switch zero := flag.Tag.Get("or") == "0"; {
		case n >= bound || zero && n == 0:
			return ""
		case zero:
			return fmt.Sprintf("%v must be 0 or at least %v", value, as(value, bound))
		case bound == 0:
			return fmt.Sprintf("%v must not be negative", value)
		default:
			return fmt.Sprintf("%v must be at least %v", value, as(value, bound))
		}
	},
	"max": func(_ *kong.Flag, value any, most string) string {
		if bound := boundOf(value, most); number(value) > bound {
			return fmt.Sprintf("%v must be at most %v", value, as(value, bound))
		}
		return ""
	},
	"oneof": func(_ *kong.Flag, value any, words string) string { // one of these words
		if list := strings.Split(words, ","); !slices.Contains(list, value.(string)) {
			return fmt.Sprintf("%q must be %s", value, strings.Join(list, " or "))
		}
		return ""
	},
	"some": func(flag *kong.Flag, value any, words string) string { // one or more of these words, or none by default
		list := strings.Split(words, ",")
		for word := range strings.SplitSeq(value.(string), ",") {
			if !slices.Contains(list, word) && (word != "" || flag.HasDefault) {
				return fmt.Sprintf("%q must be some of %s", value, words)
			}
		}
		return ""
	},
}

// relations are the rules about a flag and each of the flags that its tag names.
var relations = map[string]func(value any, other *kong.Flag, bound any) string{
	"upto": func(value any, other *kong.Flag, bound any) string {
		if number(value) > number(bound) {
			return fmt.Sprintf("%v must not be above --%s %v", value, other.Name, bound)
		}
		return ""
	},
	"below": func(value any, other *kong.Flag, bound any) string {
		if number(value) >= number(bound) {
			return fmt.Sprintf("%v must be below --%s %v", value, other.Name, bound)
		}
		return ""
	},
	"needs": func(value any, other *kong.Flag, bound any) string {
		if value != "" && bound == "" {
			return fmt.Sprintf("needs --%s beside it", other.Name)
		}
		return ""
	},
}

// checkRules reports the first flag of the command whose value breaks a rule in its tag: one about itself before those about
// others. A hint in the tag ends the sentence.
func checkRules(kctx *kong.Context) error {
	flags := kctx.Flags()
	for _, flag := range flags {
		for _, key := range []string{"min", "max", "oneof", "some"} {
			if !flag.Tag.Has(key) {
				continue
			}
			if wrong := valueRules[key](flag, kctx.FlagValue(flag), flag.Tag.Get(key)); wrong != "" {
				return &settingError{flag.Name, wrong + flag.Tag.Get("hint")}
			}
		}
	}
	for _, flag := range flags {
		for _, key := range []string{"upto", "below", "needs"} {
			if !flag.Tag.Has(key) {
				continue
			}
			for name := range strings.SplitSeq(flag.Tag.Get(key), ",") {
				other := flagNamed(flags, name)
				if wrong := relations[key](kctx.FlagValue(flag), other, kctx.FlagValue(other)); wrong != "" {
					return &settingError{flag.Name, wrong}
				}
			}
		}
	}
	return nil
}

// number is a flag's value, which is a number or a duration.
func number(value any) int64 { return reflect.ValueOf(value).Int() }

// as is n as it is printed for a flag like value.
func as(value any, n int64) any {
	if _, ok := value.(time.Duration); ok {
		return time.Duration(n)
	}
	return n
}

// boundOf reads a bound in the tag of a flag like value. One that cannot be read is a mistake of this program.
func boundOf(value any, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if _, ok := value.(time.Duration); ok {
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	}
	if err != nil {
		panic(err)
	}
	return n
}
