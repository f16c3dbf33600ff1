package admin

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// described is an operation as the test of the document sees it.
type described struct {
	Method, Path string
	asked, said  reflect.Type
}

func (o Operation[Q, R]) describe() described {
	return described{strings.ToLower(o.Method), o.Path, reflect.TypeFor[Q](), reflect.TypeFor[R]()}
}

// The document says of every operation what it takes and answers, and of nothing else: each member with its type.
func TestTheDocumentOfTheAdminAPIIsWhatTheHandlersTakeAndAnswer(t *testing.T) {
	type media struct {
		Content map[string]struct{ Schema schema }
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Summary    string
			Parameters []struct {
				Name, In string
				Required bool
				Schema   schema
			}
			RequestBody media `yaml:"requestBody"`
			Responses   map[string]media
		}
		Components struct{ Schemas map[string]schema }
	}
	expect.Must(t, yaml.Unmarshal(apiDocument, &doc))
	written := 0
	for _, path := range doc.Paths {
		written += len(path)
	}
	if written != len(operations) || written == 0 {
		t.Errorf("%d operations are documented, there are %d", written, len(operations))
	}
	for _, o := range operations {
		d := o.(interface{ describe() described }).describe()
		is, ok := doc.Paths[d.Path][d.Method]
		if !ok || is.Summary == "" {
			t.Errorf("%s %s is not documented", d.Method, d.Path)
		}
		asked := schema{Type: "object", Properties: map[string]schema{}}
		if d.Method == strings.ToLower(http.MethodPost) {
			asked = is.RequestBody.Content["application/json"].Schema
		}
		for _, p := range is.Parameters {
			if asked.Properties[p.Name] = p.Schema; p.In != "query" {
				t.Errorf("%s: the parameter %s is in %s", d.Path, p.Name, p.In)
			}
		}
		for what, pair := range map[string][2]schema{
			"takes":   {asked.whole(doc.Components.Schemas), schemaOf(d.asked)},
			"answers": {is.Responses["200"].Content["application/json"].Schema.whole(doc.Components.Schemas), schemaOf(d.said)},
			"refuses": {is.Responses["default"].Content["application/json"].Schema.whole(doc.Components.Schemas), schemaOf(reflect.TypeFor[Refusal]())},
		} {
			if got, want := pair[0].text(), pair[1].text(); got != want {
				t.Errorf("%s %s %s, as documented,\n%swant\n%s", d.Method, d.Path, what, got, want)
			}
		}
	}
}

// schema is the part of a JSON schema that the document uses.
type schema struct {
	Ref        string            `yaml:"$ref,omitempty"`
	Type       string            `yaml:"type,omitempty"`
	Format     string            `yaml:"format,omitempty"`
	Properties map[string]schema `yaml:"properties,omitempty"`
	Items      *schema           `yaml:"items,omitempty"`
}

// whole is the schema with what it refers to.
func (s schema) whole(named map[string]schema) schema {
	if s.Ref != "" {
		return named[strings.TrimPrefix(s.Ref, "#/components/schemas/")].whole(named)
	}
	for name, of := range s.Properties {
		s.Properties[name] = of.whole(named)
	}
	if s.Items != nil {
		s.Items = new(s.Items.whole(named))
	}
	return s
}

func (s schema) text() string {
	text, _ := yaml.Marshal(s)
	return string(text)
}

// schemaOf is the schema of what encoding/json makes of a type.
func schemaOf(of reflect.Type) schema {
	switch {
	case of == reflect.TypeFor[time.Time](), of == reflect.TypeFor[wire.Time]():
		return schema{Type: "string", Format: "date-time"}
	case of.Kind() == reflect.Pointer:
		return schemaOf(of.Elem())
	case of.Kind() == reflect.Slice:
		return schema{Type: "array", Items: new(schemaOf(of.Elem()))}
	case of.Kind() == reflect.String:
		return schema{Type: "string"}
	case of.Kind() == reflect.Float64:
		return schema{Type: "number"}
	case of.Kind() == reflect.Bool:
		return schema{Type: "boolean"}
	case of.Kind() == reflect.Struct:
		s := schema{Type: "object", Properties: map[string]schema{}}
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				for name, of := range schemaOf(f.Type).Properties {
					s.Properties[name] = of
				}
			} else if f.IsExported() && name != "-" {
				s.Properties[name] = schemaOf(f.Type)
			}
		}
		return s
	}
	return schema{Type: "integer"}
}
