package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"noncegate/internal/nearest"
)

// prefix begins the variables that are settings.
const prefix = "NONCEGATE_"

// serviceLink matches what Kubernetes and Docker put into the environment of a container
// for each service beside it, where that is called noncegate or noncegate-something. No
// setting is called so.
var serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknownVariable reports the first variable that is called like a setting and is none of
// any command: a setting with a slip in its name would be silently left out.
func unknownVariable(app *kong.Application, environ []string) error {
	known := variables(app.Node)
	slices.Sort(environ)
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(known, rest) || serviceLink.MatchString(name) {
			continue
		}
		if meant := nearest.Word(rest, known); meant != "" {
			return fmt.Errorf("%s in the environment is no setting; did you mean %s?", name, prefix+meant)
		}
		return fmt.Errorf("%s in the environment is no setting; gateway serve --help lists them", name)
	}
	return nil
}

// variables are those of a command and all below it, without the prefix.
func variables(node *kong.Node) (names []string) {
	for _, flag := range node.Flags {
		for _, env := range flag.Envs {
			names = append(names, strings.TrimPrefix(env, prefix))
		}
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	return names
}
