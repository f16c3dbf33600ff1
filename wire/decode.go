package wire

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-json/jsontext"
	"github.com/goccy/go-json/v2"
)

// Params makes the decoder of the params of a method, from the tags of P, a struct. It is made
// once, when the program starts.
//
// The decoder takes params as a Frame hands them on: by name, as one object in an array, or
// by position in the order of the fields. null stands for a parameter that is not given, and an
// absent one has its default. The error is invalid_params and names the field and the rule;
// with an error the value means nothing. First come the names and types, in the order in which
// they were written, then the rules, in the order of the fields. The tag param has:
//
//	required     it must be given
//	notempty     a string or a list that is given must have something in it
//	min= max=    the bounds of a number, which is never below 0
//	default=     a number that is not given
//	oneof=A|B    the words that a string may be
//
// A number is written as one, or as a "0x" quantity.
func Params[P any]() func(params []byte) (P, *Error) {
	plan := planOf(reflect.TypeFor[P]())
	type value struct {
		p      P
		fields reflect.Value // of p
	}
	values := sync.Pool{New: func() any {
		v := new(value)
		v.fields = reflect.ValueOf(&v.p).Elem()
		return v
	}}
	return func(params []byte) (p P, err *Error) {
		v := values.Get().(*value)
		err = plan.decode(params, v.fields)
		p, v.p = v.p, p
		values.Put(v)
		return p, err
	}
}

// plan is how a struct is decoded.
type plan struct{ fields []field }

// field is one parameter, as its type and its tags say.
type field struct {
	name               string
	read               reader
	required, notEmpty bool
	low, high, absent  int64 // of a number; high 0: no bound
	words              []string
	object             *plan // of a struct
}

// reader reads a value that is not null into a field. inner is given.fields of a struct.
type reader func(f *field, value []byte, v reflect.Value) (inner uint64, err *broken)

var rawType = reflect.TypeFor[Raw]()

// planOf reads the tags of a struct, of whose fields one may be a struct. A mistake in them is one of
// this package's, and panics.
func planOf(t reflect.Type) *plan {
	p := new(plan)
	for i := range t.NumField() {
		p.fields = append(p.fields, fieldOf(t.Field(i)))
	}
	return p
}

func fieldOf(sf reflect.StructField) (f field) {
	f.name, _, _ = strings.Cut(sf.Tag.Get("json"), ",")
	for rule := range strings.FieldsSeq(sf.Tag.Get("param")) {
		word, value, _ := strings.Cut(rule, "=")
		switch word {
		case "required":
			f.required = true
		case "notempty":
			f.notEmpty = true
		case "oneof":
			f.words = strings.Split(value, "|")
		case "min":
			f.low = mustInt(value)
		case "max":
			f.high = mustInt(value)
		case "default":
			f.absent = mustInt(value)
		default:
			panic("wire: no such rule: " + rule)
		}
	}
	switch kind := sf.Type.Kind(); {
	case sf.Type == rawType:
		f.read = readRaw
	case kind == reflect.String:
		f.read = readText
	case kind == reflect.Int64:
		f.read = readNumber
	case kind == reflect.Bool:
		f.read = readFlag
	case kind == reflect.Slice:
		f.read = readTexts
	case kind == reflect.Pointer && sf.Type.Elem().Kind() == reflect.Int64:
		f.read = readOptional
	case kind == reflect.Pointer:
		f.read, f.object = readObject, planOf(sf.Type.Elem())
	default:
		panic("wire: no parameter can be a " + sf.Type.String())
	}
	return f
}

func mustInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("wire: " + err.Error())
	}
	return n
}

// decode decodes params into the struct v.
func (p *plan) decode(params []byte, v reflect.Value) *Error {
	given, err := p.read(params, v)
	if err == nil {
		err = p.check(given.fields, given.inner, v)
	}
	if err != nil {
		return invalidParams(err.field, err.rule)
	}
	return nil
}

// given has a bit for each parameter that was given, and inner those of the one that is a struct.
type given struct{ fields, inner uint64 }

// broken is a rule that a field breaks; field "" is the one that is being looked at.
type broken struct{ field, rule string }

// in says that what is broken is inside of a field.
func (b *broken) in(field string) *broken {
	b.field = strings.TrimSuffix(field+"."+b.field, ".")
	return b
}

// read reads params of any form.
func (p *plan) read(params []byte, v reflect.Value) (given, *broken) {
	object, named := oneObject(params)
	switch kind := jsontext.Value(params).Kind(); {
	case named:
		return p.byName(object, v, "params")
	case kind == jsontext.KindBeginArray:
		return p.byPosition(params, v)
	case kind != jsontext.KindInvalid:
		return given{}, &broken{"params", "must be an object or an array"}
	}
	return given{}, nil
}

// oneObject returns the object that params are, or hold as their only element.
func oneObject(params []byte) (object []byte, ok bool) {
	switch jsontext.Value(params).Kind() {
	case jsontext.KindBeginObject:
		return params, true
	case jsontext.KindBeginArray:
		elements := partsOf(params)
		object = elements.next()
		return object, len(object) > 0 && object[0] == '{' && elements.next() == nil
	}
	return nil, false
}

func (p *plan) byPosition(params []byte, v reflect.Value) (g given, err *broken) {
	count, elements := 0, partsOf(params)
	for elements.next() != nil {
		count++
	}
	if count > len(p.fields) {
		return g, &broken{"params", fmt.Sprintf("%d given by position, at most %d allowed", count, len(p.fields))}
	}
	elements = partsOf(params)
	for i := range count {
		if err := p.field(&g, i, elements.next(), v); err != nil {
			return g, err
		}
	}
	return g, nil
}

// byName reads an object, which is called whole.
func (p *plan) byName(object []byte, v reflect.Value, whole string) (g given, err *broken) {
	var named uint64
	members := partsOf(object)
	for quoted := members.next(); quoted != nil; quoted = members.next() {
		value := members.next()
		i := p.indexOf(quoted)
		switch {
		case i < 0 && unpaired(quoted):
			return g, &broken{whole, unpairedSurrogate}
		case i < 0:
			return g, &broken{shortened(string(unquote(quoted))), "unknown name"}
		case named&(1<<i) != 0:
			return g, &broken{p.fields[i].name, givenTwice}
		}
		named |= 1 << i
		if err := p.field(&g, i, value, v); err != nil {
			return g, err
		}
	}
	return g, nil
}

// indexOf finds the field of a name; -1: there is none.
func (p *plan) indexOf(quoted []byte) int {
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = unquote(quoted)
	}
	for i := range p.fields {
		if p.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// field reads one parameter, and notes that it was given.
func (p *plan) field(g *given, i int, value []byte, v reflect.Value) *broken {
	if value[0] == 'n' {
		return nil
	}
	f := &p.fields[i]
	g.fields |= 1 << i
	inner, err := f.read(f, value, v.Field(i))
	if err == nil {
		g.inner |= inner
		return nil
	}
	if err.field == "" {
		if bad := malformed(value); bad != nil {
			err = bad
		}
	}
	return err.in(f.name)
}

// malformed says of a value of the wrong type what is wrong with it itself; nil: nothing.
func malformed(value []byte) *broken {
	err := json.Unmarshal(value, new(Raw))
	if err == nil {
		return nil
	}
	field, rule := brokenRule(value, err, "")
	return &broken{field, rule}
}

func readText(f *field, value []byte, v reflect.Value) (uint64, *broken) {
	if value[0] != '"' || unpaired(value) && f.words == nil {
		return 0, &broken{rule: "must be a string"}
	}
	v.SetString(string(unquote(value)))
	return 0, nil
}

func readNumber(_ *field, value []byte, v reflect.Value) (uint64, *broken) {
	n, rule := parseNumber(value)
	if rule != "" {
		return 0, &broken{rule: rule}
	}
	v.SetInt(n)
	return 0, nil
}

func readOptional(f *field, value []byte, v reflect.Value) (uint64, *broken) {
	v.Set(reflect.New(v.Type().Elem()))
	return readNumber(f, value, v.Elem())
}

func readFlag(_ *field, value []byte, v reflect.Value) (uint64, *broken) {
	if value[0] != 't' && value[0] != 'f' {
		return 0, &broken{rule: "must be true or false"}
	}
	v.SetBool(value[0] == 't')
	return 0, nil
}

// readRaw keeps a value for another decoder.
func readRaw(_ *field, value []byte, v reflect.Value) (uint64, *broken) {
	v.SetBytes(value)
	return 0, nil
}

func readObject(f *field, value []byte, v reflect.Value) (uint64, *broken) {
	if value[0] != '{' {
		return 0, &broken{rule: "must be an object"}
	}
	v.Set(reflect.New(v.Type().Elem()))
	g, err := f.object.byName(value, v.Elem(), "")
	return g.fields, err
}

func readTexts(_ *field, value []byte, v reflect.Value) (uint64, *broken) {
	const rule = "must be an array of strings"
	if value[0] != '[' {
		return 0, &broken{rule: rule}
	}
	list := []string{}
	elements := partsOf(value)
	for e := elements.next(); e != nil; e = elements.next() {
		switch {
		case unpaired(e):
			return 0, &broken{strconv.Itoa(len(list)), unpairedSurrogate}
		case e[0] == 'n':
			return 0, &broken{rule: rule}
		case e[0] != '"':
			return 0, &broken{strconv.Itoa(len(list)), "must be a string"}
		}
		list = append(list, string(unquote(e)))
	}
	v.Set(reflect.ValueOf(list))
	return 0, nil
}

// check looks at the rules of all fields, in their order, and sets what is not given.
func (p *plan) check(fields, inner uint64, v reflect.Value) *broken {
	for i := range p.fields {
		f, is := &p.fields[i], fields&(1<<i) != 0
		var rule string
		switch {
		case is:
			rule = f.breaks(v.Field(i))
		case f.required:
			rule = "is required"
		case f.absent != 0:
			v.Field(i).SetInt(f.absent)
		}
		if rule != "" {
			return &broken{f.name, rule}
		}
		if is && f.object != nil {
			if err := f.object.check(inner, 0, v.Field(i).Elem()); err != nil {
				return err.in(f.name)
			}
		}
	}
	return nil
}

// breaks is the rule that a value which was given breaks; "" if none.
func (f *field) breaks(v reflect.Value) string {
	switch {
	case f.notEmpty && v.Len() == 0:
		return "must not be empty"
	case f.words != nil && !slices.Contains(f.words, v.String()):
		return "must be " + strings.Join(f.words, " or ")
	case f.low != 0 && v.Int() < f.low:
		return fmt.Sprintf("must be at least %d", f.low)
	case f.high != 0 && v.Int() > f.high:
		return fmt.Sprintf("must be at most %d", f.high)
	}
	return ""
}

func invalidParams(field, rule string) *Error {
	return fieldError(CodeInvalidParams, field, rule)
}
