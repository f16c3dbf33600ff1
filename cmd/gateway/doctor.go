package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"noncegate/internal/admin"
	"noncegate/wire"
)

// doctorCmd asks gateways what is wrong, and compares what they say.
type doctorCmd struct {
	Also []string `placeholder:"URL" help:"Private sides of the other nodes, which are asked the same."`
	adminCmd
}

// patient is what a node said of itself.
type patient struct {
	overview admin.Overview
	settings []admin.Setting
	nodes    []wire.NodeInfo
	began    time.Time // when it was asked
	ended    time.Time // when it had answered
}

// diagnosis is what the command prints.
type diagnosis struct {
	Asked    []string        `json:"asked"`    // nodes
	Findings []admin.Finding `json:"findings"` // what must be done first
}

// Run implements the command.
func (c *doctorCmd) Run(ctx context.Context, p *program) error {
	var all []patient
	var d diagnosis
	for _, url := range append([]string{c.Admin}, c.Also...) {
		to := c.adminCmd
		to.Admin = url
		if err := to.Validate(); err != nil {
			return err
		}
		said, err := examine(ctx, &to)
		if err != nil {
			d.Findings = append(d.Findings, admin.Finding{
				ID: "unasked-" + url, Severity: "fix", What: err.Error(), Why: "What is wrong there is not known.",
				Do: "Look whether the gateway runs, and whether the key is right.",
			})
			continue
		}
		all = append(all, said)
		d.Asked = append(d.Asked, said.overview.Node)
	}
	d.Findings = append(d.Findings, compare(all)...)
	for _, severity := range []string{"fix", "look"} {
		for i := range all {
			d.add(severity, &all[i].overview)
		}
	}
	slices.SortStableFunc(d.Findings, func(a, b admin.Finding) int { return cmp.Compare(a.Severity, b.Severity) }) // fix, then look
	if err := c.print(p.stdout, &d, d.print); err != nil {
		return err
	}
	if n := d.count("fix"); n > 0 {
		return fmt.Errorf("%d to fix", n)
	}
	return nil
}

// examine asks one gateway.
func examine(ctx context.Context, c *adminCmd) (a patient, err error) {
	a.began = time.Now()
	a.overview, err = ask(ctx, c, admin.ShowOverview, admin.None{})
	a.ended = time.Now()
	if err != nil {
		return a, err
	}
	settings, err := ask(ctx, c, admin.ListSettings, admin.None{})
	if err != nil {
		return a, err
	}
	nodes, err := ask(ctx, c, admin.ListNodes, admin.None{})
	a.settings, a.nodes = settings.Settings, nodes.Nodes
	return a, err
}

// add adds what a node found, but for what another one found too.
func (d *diagnosis) add(severity string, v *admin.Overview) {
	for _, f := range v.Findings {
		known := func(other admin.Finding) bool { return other.ID == f.ID }
		if f.Severity == severity && !slices.ContainsFunc(d.Findings, known) {
			d.Findings = append(d.Findings, f)
		}
	}
}

func (d *diagnosis) count(severity string) (n int) {
	for _, f := range d.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

func (d *diagnosis) print(w io.Writer) error {
	for _, f := range d.Findings {
		fmt.Fprintf(w, "%-4s  %s\n      %s\n      %s\n", strings.ToUpper(f.Severity), f.What, f.Why, f.Do)
	}
	_, err := fmt.Fprintf(w, "%d to fix, %d to look at; asked: %s\n", d.count("fix"), d.count("look"), strings.Join(d.Asked, ", "))
	return err
}

// clocksApart is by how much the clocks of two machines may differ.
const clocksApart = time.Second

// alike are settings that all nodes of a store must have alike, with what happens where they do not.
var alike = map[string]string{
	"rights":                "What a principal may do depends on the node that it comes to.",
	"chain":                 "Nodes that own shards decide by other nodes of the chain, or by none.",
	"lease-ttl":             "A node that is gone is waited for as long as it said, and not as long as others do.",
	"hold-ttl":              "How long a nonce is held depends on the node that owns the signer.",
	"max-hold":              "How long a nonce may be held depends on the node that owns the signer.",
	"max-holds":             "How many nonces a signer may have depends on the node that owns it.",
	"request-retention":     "The shortest one counts: a request id is forgotten sooner than a client may rely on.",
	"consumed-retention":    "The shortest one counts for all.",
	"forward-queue":         "A node is given more requests than it lets in.",
	"new-signers":           "Whether a new signer begins depends on the node that owns it.",
	"engine-grant":          "How long a lost log is waited for depends on the node that had it.",
	"submit-guard-interval": "How long a call is guarded depends on the node that it comes to.",
}

// compare is what is wrong between nodes, and between them and this machine.
func compare(all []patient) (list []admin.Finding) {
	found := func(id, severity, what, why, do string) {
		list = append(list, admin.Finding{ID: id, Severity: severity, What: what, Why: why, Do: do, Page: "nodes"})
	}
	values := make(map[string]map[string][]string) // of settings: which nodes have which value
	versions := make(map[string][]string)
	var names []string
	for i := range all {
		v := &all[i].overview
		names = append(names, v.Node)
		versions[v.Version] = append(versions[v.Version], v.Node)
		if at := time.Time(v.AsOf); all[i].began.Sub(at) > clocksApart+admin.LookEvery || at.Sub(all[i].ended) > clocksApart {
			found("clock-"+v.Node, "fix",
				fmt.Sprintf("the clock of node %s shows %s, and that of this machine %s", v.Node, v.AsOf, wire.Time(all[i].ended)),
				"Tokens, tickets and certificates end by a machine's clock.", "Run a time service (chrony or ntpd) on both machines.")
		}
		for _, s := range all[i].settings {
			if alike[s.Name] != "" && !s.Secret {
				if values[s.Name] == nil {
					values[s.Name] = make(map[string][]string)
				}
				values[s.Name][s.Value] = append(values[s.Name][s.Value], v.Node)
			}
		}
	}
	if len(versions) > 1 {
		found("versions", "look", "the nodes run several versions: "+shares(versions),
			"Nodes of two versions may not forward to each other: clients are sent to the owner.", "Finish the roll-out.")
	}
	for name, has := range values {
		if len(has) > 1 {
			found("setting-"+name, "fix", fmt.Sprintf("--%s differs: %s", name, shares(has)), alike[name],
				"Give all nodes the same, and restart them one after the other.")
		}
	}
	if len(all) > 0 {
		for _, n := range all[0].nodes {
			if n.State == wire.NodeLive && !slices.Contains(names, n.Node) {
				found("unasked-"+n.Node, "look", "node "+n.Node+" is live and was not asked",
					"What it sees alone is not shown here.", "Add its private side (--also).")
			}
		}
	}
	slices.SortFunc(list, func(a, b admin.Finding) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// shares says which nodes have which value, in order.
func shares(of map[string][]string) string {
	var parts []string
	for value, nodes := range of {
		slices.Sort(nodes)
		parts = append(parts, fmt.Sprintf("%q at %s", value, strings.Join(nodes, ", ")))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
