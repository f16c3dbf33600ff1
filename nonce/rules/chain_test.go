package rules_test

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
)

// stories are scripts about time and the chain. Beside the lines of noncetest they have
//
//	wait 8s                              the store's clock goes on
//	chain mined=1 final=1 start=5 window=2 unknown=10m known old   what the chain says from now on
//	chain unseen                         and no node sees what is unknown
//	holds 3                              as many nonces may be open from now on
//	lose ceiling=4 doubt=10m grant=30s   a log is lost that may have handed out below the ceiling
//	rows                                 everything that is kept of the signer
//	watch                                how the signer is watched after that, by the last plan
//	told                                 the events of what ended by itself, since the last
//	refuse new                           a signer must be made known from now on
//	prune                                the history is forgotten
//
//go:embed testdata/stories.txt
var stories string

func TestStories(t *testing.T) {
	for _, story := range noncetest.Scripts(stories) {
		t.Run(story.Name, func(t *testing.T) {
			r := newRoom(t)
			lines, want := noncetest.Lines(story.Script)
			for i, line := range lines {
				if got := r.line(line); got != want[i] {
					t.Errorf("%s: got %q, want %q", line, got, want[i])
				}
			}
		})
	}
}

// line runs a line of a story.
func (r *room) line(line string) string {
	word, rest, _ := strings.Cut(line, " ")
	switch rest = strings.TrimSpace(rest); word {
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			r.Fatal(err)
		}
		r.now += d
	case "chain":
		chain := &noncetest.Chain{}
		chain.Say(r, strings.Fields(rest)...)
		r.chain = chain
	case "nochain":
		r.chain = nil
	case "lose":
		r.lose(rest)
	case "holds":
		fmt.Sscan(rest, &r.rules.MaxLive)
	case "refuse":
		r.rules.NewSigners = nonce.RefuseNew
	case "prune":
		clear(r.history)
	case "rows":
		return noncetest.Result(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindList}, Result: nonce.Result{Page: nonce.ListPage{Rows: r.rows()}}})
	case "watch":
		r.run(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindStatus}})
		return map[nonce.WatchKind]string{0: "as it is", nonce.WatchOff: "off", nonce.WatchOn: "on", nonce.WatchGap: fmt.Sprint("gap ", r.watch.Nonce)}[r.watch.Kind]
	case "told":
		var words []string
		for _, e := range r.events {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%v %d#%d %s", e.Type, e.Nonce, e.Attempt, e.Reason)))
		}
		r.events = nil
		return strings.Join(words, ", ")
	default:
		op := noncetest.Parse(r, line)
		r.run(op)
		if r.after > 0 {
			return fmt.Sprintf("%s in %v", noncetest.Result(op), time.Duration(r.after)*time.Millisecond-r.now)
		}
		return noncetest.Result(op)
	}
	return ""
}

// lose mends the signer after the loss of a log that had a ceiling of it.
func (r *room) lose(words string) {
	var doubt, grant string
	if _, err := fmt.Sscanf(words, "ceiling=%d doubt=%s grant=%s", &r.signer.Ceiling, &doubt, &grant); err != nil {
		r.Fatal(err)
	}
	at := func(text string) int64 {
		d, err := time.ParseDuration(text)
		if err != nil {
			r.Fatal(err)
		}
		return (r.now + d).Milliseconds()
	}
	r.shard.Epoch++
	r.shard.DoubtUntil, r.shard.GrantUntil = at(doubt), at(grant)
	mended, is := rules.Mend(r.signer, &r.shard)
	if !is {
		r.Fatal("there is nothing to mend")
	}
	r.signer = mended
}
