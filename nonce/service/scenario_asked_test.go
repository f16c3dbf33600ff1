package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/performance"
)

// asked answers what a line asks for; "?" if it asks for nothing.
func (s *scenario) asked(word string, words []string) string {
	s.Helper()
	first := words[0]
	name := signer
	if first != "" {
		name = first
	}
	switch word {
	case "rows":
		return s.disk.rows(s.T, name)
	case "owner":
		return s.disk.load(s.T, name).Shard.Owner.Node
	case "token":
		return fmt.Sprint(s.disk.load(s.T, name).Shard.Token)
	case "version":
		return fmt.Sprint(s.disk.load(s.T, name).Signer.Version)
	case "row": // what a list does not show
		row := s.disk.load(s.T, name).Signer
		return fmt.Sprintf("next %d floor %d", row.Next, row.Floor)
	case "live":
		if n := len(s.disk.load(s.T, name).Signer.Live); n > 5*noncetest.MaxHolds {
			return fmt.Sprint(n)
		}
		return "few"
	case "busy": // asks for something of each shard, and then what follows
		for i := range shards {
			for _, op := range []*noncetest.Op{allocate(s.disk.nameIn(i)), {Request: nonce.Request{Kind: nonce.KindStatus, Signer: s.disk.nameIn(i)}}} {
				ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
				_ = s.node(first).Do(ctx, op)
				cancel()
			}
		}
		if words[1] == "" {
			return ""
		}
		return s.do(strings.TrimSpace(strings.Join(words[1:], " ")), nil)
	case "took": // how long what follows takes
		began := time.Now()
		s.do(strings.TrimSpace(strings.Join(words, " ")), nil)
		return time.Since(began).String()
	case "prompt": // what follows, and at once
		began := time.Now()
		got := s.do(strings.TrimSpace(strings.Join(words, " ")), nil)
		if took := time.Since(began); took > 50*time.Millisecond {
			s.Errorf("%s took %v", words, took)
		}
		return got
	case "listed":
		due, err := s.disk.Due(s.Context(), []int{0, 1, 2, 3}, 10)
		if err != nil {
			s.Fatal(err)
		}
		return fmt.Sprint(len(due))
	case "watched":
		list, err := s.disk.Watched(s.Context(), []int{0, 1, 2, 3}, 0, 9)
		if err != nil {
			s.Fatal(err)
		}
		return watchWords(list)
	case "arrives": // a commit that is late
		res, err := s.disk.Commit(s.Context(), s.late.Holder, s.late.Writes)
		if err != nil {
			s.Fatal(err)
		}
		return map[bool]string{true: "taken", false: "refused"}[slices.Contains(res.Results, nonce.Applied)]
	case "heard": // by the chain
		return s.chain.Heard()
	case "servers": // of each shard
		all, err := s.disk.Owners(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		return fmt.Sprintf("%q", all.Serving())
	case "logs":
		return fmt.Sprint(s.owners(func(o owned) bool { return o.log && (first == "" || o.node == first) }))
	case "lost":
		return fmt.Sprint(s.owners(lost))
	case "owned":
		return fmt.Sprint(s.owners(of(first)))
	case "sent": // from node to node
		return s.cluster.took()
	case "calls":
		s.mu.Lock()
		defer s.mu.Unlock()
		n := s.calls[first]
		clear(s.calls)
		return fmt.Sprint(n)
	case "listings":
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprint(s.listings)
	case "quiet":
		return fmt.Sprint(s.quiet.Load())
	case "answered":
		synctest.Wait()
		return fmt.Sprint(!slices.ContainsFunc(words, func(id string) bool { return id != "" && !s.op(id).answered() }))
	case "records":
		number, rehearsed := strings.CutPrefix(first, "r")
		shard, _ := strconv.Atoi(number)
		if rehearsed {
			shard = nonce.Rehearsal(shard)
		}
		return fmt.Sprint(s.server.records(shard))
	case "goal":
		goal, err := s.disk.Engine(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		return fmt.Sprintf("performance %v degraded %v", goal.Performance, goal.Degraded)
	case "shipped":
		all, err := s.disk.Owners(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		return fmt.Sprint(all.Shards[0].Shipped)
	}
	s.mu.Lock()
	n := s.named[first]
	s.mu.Unlock()
	if n != nil {
		return n.asked(word, words[1])
	}
	return "?"
}

// asked answers what a line asks of a node.
func (n *node) asked(word, which string) string {
	switch word {
	case "figure":
		return fmt.Sprint(n.fig.get(map[string]*int{
			"fenced": &n.fig.fenced, "takeovers": &n.fig.takeovers, "swept": &n.fig.swept, "wentback": &n.fig.wentBack,
			"invariant": &n.fig.invariant, "late": &n.fig.late, "nothad": &n.fig.notHad,
		}[which]))
	case "events":
		return n.events.String()
	case "stopped":
		return fmt.Sprint(n.StoppedSigners())
	case "told": // of what it is to watch
		list, err := n.Watched(n.t.Context(), 0, 9)
		if err != nil {
			n.t.Fatal(err)
		}
		return watchWords(list)
	case "unserved":
		missed, _ := n.Fleet().Unserved()
		return fmt.Sprint(missed)
	case "has":
		return fmt.Sprint(n.Owned())
	case "paused":
		return fmt.Sprint(n.fig.sweepsPaused())
	case "conflicts":
		return fmt.Sprint(n.VersionConflicts())
	case "unknowns":
		return fmt.Sprint(n.UnknownCommits())
	case "pruned":
		return fmt.Sprint(n.Pruned())
	case "fatal":
		select {
		case err := <-n.fatal:
			return why(err)
		default:
			return "nothing"
		}
	case "ready":
		return why(n.Ready(n.t.Context()))
	case "state":
		return fmt.Sprint(n.engine.Status().State)
	case "rehearsal":
		st := n.engine.Status()
		trouble := slices.ContainsFunc(st.Rehearsing, func(r performance.Rehearsing) bool { return r.Trouble != "" })
		return strings.TrimSuffix(fmt.Sprintf("%d shards, %d done, in trouble", len(st.Rehearsing), st.Rehearsed), map[bool]string{false: ", in trouble"}[trouble])
	case "grant":
		return n.engine.Status().Here[0].Grant.Truncate(time.Second).String()
	case "commits": // ops of each
		return strings.Trim(fmt.Sprint(n.fig.commits), "[]")
	case "elsewhere":
		return fmt.Sprint(n.Elsewhere(signer))
	case "forwarding":
		return fmt.Sprint(n.Forwarding())
	case "here":
		return fmt.Sprint(len(n.engine.Status().Here))
	case "unshipped":
		return fmt.Sprint(n.engine.Figures().Unshipped)
	case "serving":
		return fmt.Sprint(n.engine.Figures().Serving)
	case "storeaway":
		return fmt.Sprint(n.engine.Status().StoreAway)
	case "declared":
		return fmt.Sprint(n.engine.Status().Lost)
	}
	return "?"
}

// why is what stopped a node, in words.
func why(err error) string {
	for word, sentinel := range map[string]error{"superseded": lease.ErrSuperseded, "went back": lease.ErrWentBack, "draining": nonce.ErrDraining} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	return fmt.Sprint(err)
}

// watchWords are signers that are watched: whether each is signer, and what is the matter.
func watchWords(list []nonce.WatchEntry) string {
	var words []string
	for _, e := range list {
		words = append(words, strings.TrimSpace(fmt.Sprint(e.Signer == signer, " ", e.Kind.String())))
	}
	return strings.Join(words, ", ")
}
