// Command sbom writes the bill of materials of a Go program, in CycloneDX 1.6, to
// standard output:
//
//	sbom -name gateway -version 1.2.3 PROGRAM...
//
// It lists what the linker wrote down in the program: the modules that are really in
// it, with their checksums, and the Go that built it. Of a program that was built for
// several platforms it lists what is in any of them. There is no time and no serial
// number in it, so that the same programs have the same bill.
//
// It is not cyclonedx-gomod (v1.10.0), because that puts the checksums of its own
// program into a bill, which differ with where and by what it was built, and makes a
// bill for each platform. A release has the same bytes everywhere, and one bill.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// bill is the part of CycloneDX that a program has need of.
type bill struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func main() {
	name := flag.String("name", "", "name of the program")
	version := flag.String("version", "", "its version")
	flag.Parse()
	if err := run(os.Stdout, flag.Args(), *name, *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string, name, version string) error {
	if len(args) == 0 || name == "" || version == "" {
		return fmt.Errorf("usage: sbom -name NAME -version VERSION PROGRAM [MORE]")
	}
	var infos []*debug.BuildInfo
	for _, program := range args {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	b, err := billOf(infos, name, version)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(b)
}

func billOf(infos []*debug.BuildInfo, name, version string) (*bill, error) {
	b := &bill{Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Component = component{Type: "application", Ref: name + "@" + version, Name: name, Version: version}
	listed := make(map[string]component)
	for _, info := range infos {
		goVersion := strings.TrimPrefix(info.GoVersion, "go")
		std := component{Type: "library", Ref: "std@" + goVersion, Name: "std", Version: goVersion, PURL: "pkg:golang/std@" + goVersion}
		listed[std.Ref] = std
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c, err := componentOf(m)
			if err != nil {
				return nil, err
			}
			listed[c.Ref] = c
		}
	}
	b.Components = slices.SortedFunc(maps.Values(listed), func(x, y component) int { return strings.Compare(x.Ref, y.Ref) })
	return b, nil
}

func componentOf(m *debug.Module) (component, error) {
	c := component{Type: "library", Ref: m.Path + "@" + m.Version, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	if m.Sum == "" { // a folder of this tree
		return c, nil
	}
	// h1 is a SHA-256 over the checksums of the module's files.
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != 32 {
		return c, fmt.Errorf("module %s has the checksum %q, which is not of the kind h1", m.Path, m.Sum)
	}
	c.Hashes = []hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(sum)}}
	return c, nil
}
