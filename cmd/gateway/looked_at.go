package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"noncegate/internal/admin"
	"noncegate/wire"
)

// secretSettings have no value where settings are shown.
var secretSettings = []string{"admin-key", "node-secret"}

// urlSettings are URLs, or texts with one, that may hold a password, or a key in their path.
var urlSettings = []string{"store", "redis", "chain"}

// settingsInForce are the settings of the command, each with where it is from.
func settingsInForce(kctx *kong.Context, file *settingsFile) (list []admin.Setting) {
	for _, flag := range kctx.Selected().Flags {
		if flag.Name == "help" {
			continue
		}
		s := admin.Setting{Name: flag.Name, From: file.from(kctx, flag)}
		value := fmt.Sprint(kctx.FlagValue(flag))
		switch {
		case slices.Contains(secretSettings, flag.Name):
			s.Secret = value != ""
		case slices.Contains(urlSettings, flag.Name) && strings.Contains(value, "://"):
			s.Secret = true
		default:
			s.Value = withoutPassword(value)
		}
		list = append(list, s)
	}
	return list
}

// withoutPassword leaves the password of a URL out.
func withoutPassword(value string) string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		return u.Redacted()
	}
	return value
}

// from is where a setting in force is from.
func (f *settingsFile) from(kctx *kong.Context, flag *kong.Flag) string {
	for _, p := range kctx.Path {
		if p.Flag != nil && p.Flag.Name == flag.Name && !p.Resolved {
			return "flag"
		}
	}
	if _, env := environment(flag); env {
		return "environment"
	}
	if _, ok := f.values[flag.Name]; ok {
		return "file"
	}
	return "default"
}

// certificateEnds is how long before its end a certificate is a finding.
const certificateEnds = 14 * 24 * time.Hour

// trouble is what this gateway knows of itself that a person should look at.
func (a *app) trouble() (list []admin.Finding) {
	for _, f := range a.tls.files() {
		if f.Stale() {
			list = append(list, admin.Finding{
				ID: "tls-stale", Severity: "fix", Page: "settings", What: "Files of TLS have changed to something that cannot be used",
				Why: "What was read before is in force, until the next start.",
				Do:  "Write a certificate and a key that belong together; the log says what is wrong.",
			})
		}
	}
	if a.tls.server != nil {
		if end := a.tls.server.NotAfter(); time.Until(end) < certificateEnds {
			list = append(list, admin.Finding{
				ID: "certificate-ends", Severity: "fix", Page: "settings", What: "The certificate ends at " + wire.Time(end).String(),
				Why: "Clients refuse it from then on.", Do: "Renew it; the files are read again by themselves.",
			})
		}
	}
	return list
}

// chainViews are the chains with their nodes.
func (a *app) chainViews() (list []admin.ChainView) {
	for id, client := range a.ethereum {
		v := admin.ChainView{Chain: id, Nodes: []admin.ChainNodeView{}}
		for _, n := range client.Status().Nodes {
			one := admin.ChainNodeView{Name: n.Name, Up: n.Up, Head: n.Head, LagBlocks: n.Lag, Error: n.LastError}
			if n.OtherChain != "" {
				one.Error = "it is of chain " + n.OtherChain
			}
			if n.BackingOffUntil.After(time.Now()) {
				one.BackingOffUntil = new(wire.Time(n.BackingOffUntil))
			}
			v.Nodes = append(v.Nodes, one)
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b admin.ChainView) int { return strings.Compare(a.Chain, b.Chain) })
	return list
}
