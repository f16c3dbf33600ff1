package rights

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"noncegate/nonce"
)

const (
	// maxBytes bounds the file.
	maxBytes = 16 << 20
	// maxPrincipal bounds the name of a principal, in characters.
	maxPrincipal = 128
)

// file is the YAML as it is written.
type file struct {
	Principals   map[located][]grant     `yaml:"principals"`
	Quotas       map[located]quotaFields `yaml:"quotas"`
	DefaultQuota quotaFields             `yaml:"defaultQuota"`
}

type grant struct {
	Rights  []located `yaml:"rights"`
	Signers []located `yaml:"signers"`
}

// quotaFields are those of a Quota; nil: not given.
type quotaFields struct {
	RequestsPerSecond *float64 `yaml:"requestsPerSecond"`
	Burst             *whole   `yaml:"burst"`
	Connections       *whole   `yaml:"connections"`
	Subscriptions     *whole   `yaml:"subscriptions"`
	OpenHolds         *whole   `yaml:"openHolds"`
	NewSigners        *whole   `yaml:"newSignersPerMinute"`
}

// whole is a whole number. Package yaml would cut off what is behind a decimal point.
type whole int

// UnmarshalYAML implements yaml.Unmarshaler.
func (w *whole) UnmarshalYAML(n *yaml.Node) error {
	var v int64
	if n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < 0 || v > math.MaxInt32 {
		return fmt.Errorf("line %d: %q must be a whole number, 0 (no limit) to %d", n.Line, n.Value, math.MaxInt32)
	}
	*w = whole(v)
	return nil
}

// located is a word of the file and its line. Only words are taken: a number or a
// truth value is none, unless it is in quotes.
type located struct {
	text string
	line int
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *located) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return fmt.Errorf("line %d: a name is needed here, in quotes where it looks like something else", n.Line)
	}
	l.text, l.line = n.Value, n.Line
	return nil
}

// errorf is an error with the line of what is wrong.
func (l located) errorf(format string, args ...any) error {
	if l.line == 0 { // null, which no Unmarshaler is shown
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("line %d: "+format, append([]any{l.line}, args...)...)
}

// Parse reads the text of a rights file. The error is a sentence about the first thing
// that is wrong, with its line.
func Parse(text []byte) (*Rights, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", maxBytes)
	}
	var f file
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	switch err := dec.Decode(&f); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty; principals is missing")
	case err != nil:
		return nil, sentence(err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one YAML document, or something after the first")
	}
	if len(f.Principals) == 0 {
		return nil, errors.New("principals is missing or empty: nobody could be let in")
	}
	sum := sha256.Sum256(text)
	r := &Rights{hash: hex.EncodeToString(sum[:]), principals: make(map[string]*grants, len(f.Principals))}
	for _, who := range inOrder(f.Principals) {
		if err := r.addPrincipal(who, f.Principals[who]); err != nil {
			return nil, err
		}
	}
	if err := r.setQuotas(&f); err != nil {
		return nil, err
	}
	return r, nil
}

// inOrder returns the keys by line, so that of several errors the first is told.
func inOrder[V any](m map[located]V) []located {
	keys := make([]located, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b located) int { return a.line - b.line })
	return keys
}

func (r *Rights) addPrincipal(who located, list []grant) error {
	if err := CheckPrincipal(who.text); err != nil {
		return who.errorf("principal %q %w", who.text, err)
	}
	if r.principals[who.text] != nil {
		return who.errorf("principal %q is there twice", who.text)
	}
	exact, prefixes := map[string]Right{}, map[string]Right{}
	for i, g := range list {
		if len(g.Rights) == 0 || len(g.Signers) == 0 {
			return who.errorf("entry %d of principal %q needs rights and signers, one of each at least", i+1, who.text)
		}
		var has Right
		for _, name := range g.Rights {
			right, err := parseRight(name.text)
			if err != nil {
				return name.errorf("%w", err)
			}
			has |= right
		}
		for _, pattern := range g.Signers {
			text, isPrefix, err := ParsePattern(pattern.text)
			if err != nil {
				return pattern.errorf("signer pattern %q %w", pattern.text, err)
			}
			if has&Chain != 0 && !(isPrefix && wholeChain.MatchString(text)) {
				return pattern.errorf("signer pattern %q %w", pattern.text, errWholeChain)
			}
			if isPrefix {
				prefixes[text] |= has
			} else {
				exact[text] |= has
			}
		}
	}
	g := build(exact, prefixes)
	r.principals[who.text] = g
	r.patterns += len(g.exact) + len(g.prefixes)
	return nil
}

func parseRight(name string) (Right, error) {
	if i := slices.Index(names[:], name); i >= 0 {
		return 1 << i, nil
	}
	return 0, fmt.Errorf("there is no right %q; the rights are %s", name, strings.Join(names[:], ", "))
}

var (
	errPrincipal = fmt.Errorf("must be 1 to %d visible ASCII characters, no spaces", maxPrincipal)
	errStar      = errors.New("must have its * at the end only")
	errHalf      = errors.New("must have the beginning of an address in lower case, as addresses are in signers")
)

// wholeChain are the beginnings of signers, or of all of them, that leave no part of a chain out.
var wholeChain = regexp.MustCompile(`^(eip155:([0-9]+:)?)?$`)

var errWholeChain = errors.New("cannot have the right chain, which is for whole chains (eip155:1:*, or eip155:* or * for all): give it in an entry of its own")

// ChainOf is what to ask May for instead of a signer, for the right Chain on a chain, such as
// eip155:1.
func ChainOf(chain string) string { return chain + ":" }

// CheckPrincipal reports whether name can be that of a principal: the error goes
// behind the name.
func CheckPrincipal(name string) error {
	if name == "" || len(name) > maxPrincipal || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errPrincipal
	}
	return nil
}

// ParsePattern reads a pattern of signers: a signer, or with * at its end the
// beginning of some, which is returned without the *. Addresses are lower-cased as
// nonce.ParseSigner does. A beginning that ends inside a chain id is refused. The error
// goes behind the pattern.
func ParsePattern(s string) (text string, isPrefix bool, err error) {
	text, isPrefix = strings.CutSuffix(s, "*")
	if strings.Contains(text, "*") {
		return "", false, errStar
	}
	if isPrefix && text == "" {
		return "", true, nil
	}
	parse := nonce.ParseSigner
	if isPrefix {
		parse = nonce.ParseSignerPrefix
	}
	if text, err = parse(text); err != nil {
		return "", false, err
	}
	if isPrefix {
		if err := CheckPrefix(text); err != nil {
			return "", false, err
		}
	}
	if half := halfAddress.FindString(text); isPrefix && strings.ContainsFunc(half[min(1, len(half)):], unicode.IsUpper) {
		return "", false, errHalf
	}
	return text, isPrefix, nil
}

// CheckPrefix refuses a text that begins signers and ends with a chain id, or with the
// beginning of one: eip155:1 begins signers of the chains 1, 10 and 137. The error goes
// behind the pattern.
func CheckPrefix(text string) error {
	id, account := strings.CutPrefix(text, "eip155:")
	if !account || id == "" || strings.Contains(id, ":") {
		return nil
	}
	return fmt.Errorf("ends inside a chain id, so that signers of other chains fit it too; for chain %s alone it is eip155:%s:*", id, id)
}

// halfAddress is the beginning of an address at the end of a text. When it has capitals,
// it cannot be said whether the signers meant have them too.
var halfAddress = regexp.MustCompile(`(?:^|[^0-9A-Za-z])0[xX][0-9A-Fa-f]{0,39}$`)

// setQuotas gives each principal its quota: what is written for it, else the default.
func (r *Rights) setQuotas(f *file) error {
	base, err := f.DefaultQuota.over(Quota{})
	if err != nil {
		return fmt.Errorf("defaultQuota: %w", err)
	}
	for _, g := range r.principals {
		g.quota = base
	}
	for _, who := range inOrder(f.Quotas) {
		g := r.principals[who.text]
		if g == nil {
			return who.errorf("there is a quota for %q, who is not among the principals", who.text)
		}
		if g.quota, err = f.Quotas[who].over(base); err != nil {
			return who.errorf("quota of %q: %w", who.text, err)
		}
	}
	return nil
}

// maxRate bounds requestsPerSecond; more is no limit, and says so with 0.
const maxRate = 1e9

// over returns base with the fields that are given.
func (q quotaFields) over(base Quota) (Quota, error) {
	if v := q.RequestsPerSecond; v != nil {
		if math.IsNaN(*v) || *v < 0 || *v > maxRate {
			return Quota{}, fmt.Errorf("requestsPerSecond %v must be 0 (no limit) to 1e9", *v)
		}
		base.RequestsPerSecond, base.Burst = *v, 0
	}
	for _, n := range []struct {
		from *whole
		to   *int
	}{
		{q.Burst, &base.Burst},
		{q.Connections, &base.Connections},
		{q.Subscriptions, &base.Subscriptions},
		{q.OpenHolds, &base.OpenHolds},
		{q.NewSigners, &base.NewSigners},
	} {
		if n.from != nil {
			*n.to = int(*n.from)
		}
	}
	switch {
	case base.RequestsPerSecond == 0 && base.Burst > 0:
		return Quota{}, errors.New("burst needs requestsPerSecond")
	case base.RequestsPerSecond > 0 && base.Burst == 0: // a second's worth
		base.Burst = max(1, int(math.Ceil(base.RequestsPerSecond)))
	}
	return base, nil
}

// goType is how package yaml names the types of this one.
var goType = regexp.MustCompile(` in type rights\.\w+|into rights\.\w+|into (map\[rights\.\w+\])?(\[\])?rights\.\w+`)

// sentence is an error of package yaml in one line and without the names of Go types.
func sentence(err error) error {
	text := err.Error()
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok && len(wrong.Errors) > 0 {
		text = wrong.Errors[0]
	}
	text = goType.ReplaceAllString(strings.TrimPrefix(text, "yaml: "), "")
	return errors.New(strings.Join(strings.Fields(text), " "))
}
