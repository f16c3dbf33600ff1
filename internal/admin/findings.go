package admin

import (
	"context"
	"fmt"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/wire"
)

// Finding is something that a person should do, or look at.
type Finding struct {
	ID       string `json:"id"`       // the same as long as it is there
	Severity string `json:"severity"` // fix or look
	What     string `json:"what"`
	Why      string `json:"why"` // it matters
	Do       string `json:"do"`
	Page     string `json:"page"` // of the console: signer, signers, signers?filter=unknown, engine, nodes, keys, settings
	Signer   string `json:"signer,omitempty"`
	Node     string `json:"node,omitempty"`
	Shard    *int64 `json:"shard,omitempty"`
}

// Findings are those of one look.
type Findings struct {
	AsOf     wire.Time `json:"asOf"`
	Findings []Finding `json:"findings"`
}

const (
	fix  = "fix"
	look = "look"

	mostFindings = 20        // of a kind
	oldUnknown   = time.Hour // how long a signer has unknown holds before it is named
	keyEnds      = 7 * 24 * time.Hour
	lagBlocks    = 10
)

func (a *Server) listFindings(ctx context.Context, none None) (Findings, error) {
	v, err := a.overview(ctx, none)
	return Findings{v.AsOf, v.Findings}, err
}

// findings are what stands out, what must be done first. What cannot be read is a finding too.
func (a *Server) findings(ctx context.Context, engine *EngineStatus, v *Overview) []Finding {
	all := []Finding{}
	for _, part := range [][]Finding{
		ofReach("store", "PostgreSQL or the file of SQLite", &v.Store), ofReach("redis", "Redis", v.Redis), ofEngine(engine), a.ofShards(),
		a.ofSigners(ctx), a.ofNodes(), ofChains(v.Chains), a.ofKeys(ctx), a.advice(ctx),
	} {
		all = append(all, part...)
	}
	if a.cfg.Trouble != nil {
		all = append(all, a.cfg.Trouble()...)
	}
	ordered := []Finding{}
	for _, severity := range []string{fix, look} {
		for _, f := range all {
			if f.Severity == severity {
				ordered = append(ordered, f)
			}
		}
	}
	return ordered
}

func ofReach(id, what string, r *ReachView) []Finding {
	if r == nil || r.OK {
		return nil
	}
	return []Finding{{
		ID: id, Severity: fix, Page: "nodes", What: what + " is not reached: " + r.Error, Why: "Without it requests are refused, or wait.",
		Do: "Look whether the server runs and is reached from this node.",
	}}
}

func ofEngine(e *EngineStatus) (list []Finding) {
	if e.State == performance.Degraded {
		list = append(list, Finding{
			ID: "engine-degraded", Severity: fix, Page: "engine", What: "The performance engine was left because of a trouble: " + e.Reason,
			Why: "All requests are answered from the store, more slowly, until somebody switches.", Do: "Mend the cause, and switch the engine.",
		})
	}
	if e.Lost > 0 {
		list = append(list, Finding{
			ID: "engine-lost", Severity: fix, Page: "engine", What: fmt.Sprintf("%d logs of the performance engine were lost", e.Lost),
			Why: "What they had given out and was not in the store is in doubt.", Do: "Look at the signers with unknown holds, and reconcile.",
		})
	}
	return list
}

func (a *Server) ofShards() []Finding {
	unowned, longest := a.cfg.Service.Fleet().Unserved()
	if unowned == 0 || longest < 10*time.Second {
		return nil
	}
	return []Finding{{
		ID: "shards-unowned", Severity: fix, Page: "nodes",
		What: fmt.Sprintf("%d shards have no owner, one for %v", unowned, longest.Round(time.Second)),
		Why:  "Requests for their signers are refused.", Do: "Look whether a node of mode worker-queue lives and reaches the store.",
	}}
}

func (a *Server) ofNodes() (list []Finding) {
	for _, n := range a.cfg.NodeInfos(a.cfg.Nodes()) {
		if n.State == wire.NodeSilent && len(list) < mostFindings {
			list = append(list, Finding{
				ID: "node-silent-" + n.Node, Severity: look, Page: "nodes", Node: n.Node,
				What: "Node " + n.Node + " is silent since " + n.SeenAt.String(),
				Why:  "It has not said that it ends: it crashed, hangs, or does not reach the store.", Do: "Look at its log; its shards go to others.",
			})
		}
	}
	return list
}

func ofChains(chains []ChainView) (list []Finding) {
	for _, c := range chains {
		for _, n := range c.Nodes {
			f := Finding{
				ID: "chain-node-" + c.Chain + "-" + n.Name, Severity: look, Page: "nodes",
				Why: "With no node up holds wait for the chain's word, and new signers are refused.",
				Do:  "Look at the node, or take it out of --chain.",
			}
			switch {
			case !n.Up:
				f.What = fmt.Sprintf("The node %s of %s is down: %s", n.Name, c.Chain, n.Error)
			case n.LagBlocks > lagBlocks:
				f.What = fmt.Sprintf("The node %s of %s is %d blocks behind", n.Name, c.Chain, n.LagBlocks)
			default:
				continue
			}
			list = append(list, f)
		}
	}
	return list
}

func (a *Server) ofKeys(ctx context.Context) (list []Finding) {
	if a.cfg.Keys == nil || a.cfg.Gate == nil {
		return nil
	}
	all, err := a.cfg.Keys.Keys(ctx, 0)
	if err != nil {
		return []Finding{unread("keys", err)}
	}
	for _, k := range all.Keys {
		if k.Ended(all.Now) == nil && !k.Expires.IsZero() && k.Expires.Sub(all.Now) < keyEnds && len(list) < mostFindings {
			list = append(list, Finding{
				ID: "key-ends-" + k.ID, Severity: look, Page: "keys",
				What: fmt.Sprintf("The API key %s of %s ends at %s", k.ID, k.Principal, wire.Time(k.Expires)),
				Why:  "Its connections are closed then.", Do: "Make a second key, give it to the clients, revoke this one.",
			})
		}
	}
	return list
}

func unread(what string, err error) Finding {
	return Finding{
		ID: "unread-" + what, Severity: look, Page: "nodes", What: "The " + what + " could not be looked at: " + sentence(err),
		Why: "What is wrong with them is not shown here.", Do: "Look again.",
	}
}

// ofSigners are the signers that stand out, of each kind only the first ones.
func (a *Server) ofSigners(ctx context.Context) (list []Finding) {
	for _, name := range a.cfg.Service.Stopped(mostFindings) {
		list = append(list, Finding{
			ID: "stopped-" + name, Severity: fix, Page: "signer", Signer: name, What: name + " is stopped: the store shows less of it than was seen",
			Why: "Nothing is handed out of it.", Do: "Find its highest used nonce on its chain, and raise the floor above it.",
		})
	}
	for _, part := range []struct {
		filter nonce.SignerFilter
		of     func([]nonce.SignerFigures) []Finding
	}{
		{nonce.TroubledSigners, each(ofTrouble)}, {nonce.UnknownSigners, a.looked.ofUnknown}, {nonce.GapSigners, each(ofReleased)},
	} {
		rows, err := a.cfg.Store.Signers(ctx, nonce.SignersQuery{Filter: part.filter, Limit: mostFindings})
		if err != nil {
			return append(list, unread("signers", err))
		}
		list = append(list, part.of(rows)...)
	}
	return list
}

// each makes findings of signers.
func each(of func(*nonce.SignerFigures) Finding) func([]nonce.SignerFigures) []Finding {
	return func(rows []nonce.SignerFigures) (list []Finding) {
		for i := range rows {
			f := of(&rows[i])
			f.Page, f.Signer = "signer", rows[i].Signer
			list = append(list, f)
		}
		return list
	}
}

func ofTrouble(f *nonce.SignerFigures) Finding {
	word := f.Watch.Kind.String()
	found := Finding{
		ID: word + "-" + f.Signer, Severity: fix, Why: "All later transactions of the signer wait behind it.",
		Do: "Look at the signer: what helps depends on the state of the nonce (its page, or gateway signer show).",
	}
	since := wire.Time(f.Watch.SinceTime()).String()
	switch f.Watch.Kind {
	case nonce.WatchGap:
		found.What = fmt.Sprintf("%s does not move on its chain since %s: nonce %d blocks it", f.Signer, since, f.Watch.Nonce)
	case nonce.WatchDropped:
		found.What = fmt.Sprintf("%s does not move on its chain since %s: the transaction of nonce %d is lost", f.Signer, since, f.Watch.Nonce)
	default:
		found.Severity = look
		found.What = fmt.Sprintf("The transaction of nonce %d of %s is not mined since %s", f.Watch.Nonce, f.Signer, since)
	}
	return found
}

// ofUnknown names the signers that have had unknown holds for long, and counts the others. The rows do not say when a
// hold became unknown, and its deadline moves with each decision about it: so it counts from the first of the looks of
// this node that have found the signer with such holds, without one between that has not.
func (l *looked) ofUnknown(rows []nonce.SignerFigures) (list []Finding) {
	now, since := time.Now(), make(map[string]time.Time, len(rows))
	var signers, holds int64 // that are not named
	for i := range rows {
		f := &rows[i]
		at, known := l.unknown[f.Signer]
		if !known {
			at = now
		}
		if since[f.Signer] = at; now.Sub(at) < oldUnknown {
			signers, holds = signers+1, holds+f.Unknown
			continue
		}
		list = append(list, Finding{
			ID: "unknown-" + f.Signer, Severity: look, Page: "signer", Signer: f.Signer,
			What: fmt.Sprintf("%s has %d unknown holds, which ended without a word whether their nonces were used, and had such holds at each "+
				"look of this node since %s", f.Signer, f.Unknown, wire.Time(at)),
			Why: "Their nonces are not handed out again, and what was not sent is a gap to be. When a hold became unknown is not stored: " +
				"the time counts from the first look of this node, since its start, that found one.",
			Do: "Find out whether they were sent: consume those that were, release the others.",
		})
	}
	if l.unknown = since; signers > 0 {
		few := ""
		if len(rows) == mostFindings {
			few = "at least "
		}
		list = append(list, Finding{
			ID: "unknown-holds", Severity: look, Page: "signers?filter=unknown",
			What: fmt.Sprintf("there are unknown holds, which ended without a word whether their nonces were used: %s%d, of %d signers",
				few, holds, signers),
			Why: "Each ends by itself when the chain uses its nonce, or after --unknown-ttl, unless no node of the chain can be asked.",
			Do:  "Look again in some minutes. A signer that has some at each look of this node for an hour is named here.",
		})
	}
	return list
}

func ofReleased(f *nonce.SignerFigures) Finding {
	return Finding{
		ID: "released-" + f.Signer, Severity: look,
		What: fmt.Sprintf("%s has %d released nonces below others, from %d on, that nobody takes", f.Signer, f.Released, f.LowestReleased),
		Why:  "Transactions above them wait until a client allocates them and sends.",
		Do:   "Have a client of the signer send, or send something with them.",
	}
}
