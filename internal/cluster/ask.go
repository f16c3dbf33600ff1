package cluster

import (
	"fmt"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// inquiry is a read that is forwarded for whoever waits for it.
type inquiry struct {
	res     nonce.Result
	verdict nonce.Verdict
	done    chan struct{}
}

// Gone implements nonce.Forwarded.
func (*inquiry) Gone() bool { return false }

// Return implements nonce.Forwarded.
func (i *inquiry) Return(r *nonce.Result, v nonce.Verdict) nonce.Waker {
	i.res, i.verdict = *r, v
	close(i.done)
	return nil
}

func isRead(k nonce.Kind) bool { return k == nonce.KindStatus || k == nonce.KindList }

// StatusAt asks a node for what the chain says of a signer that it owns; nil: nothing. It goes
// behind what was forwarded there before, waits no longer than an op that is forwarded, and takes at
// most half of the slots. An error means that the owner has not said it.
func (r *Router) StatusAt(node, url, signer string, by nonce.Principal) (*nonce.ChainSaid, error) {
	return r.ask(node, url, &nonce.Request{Kind: nonce.KindStatus, Signer: signer, Principal: by})
}

// ListAt is StatusAt for what the chain says of the nonces of a list: those that it says something of.
func (r *Router) ListAt(node, url string, list nonce.ListQuery, by nonce.Principal) (*nonce.ChainSaid, error) {
	return r.ask(node, url, &nonce.Request{Kind: nonce.KindList, Signer: list.Signer, List: list, Principal: by})
}

func (r *Router) ask(node, url string, q *nonce.Request) (*nonce.ChainSaid, error) {
	i := &inquiry{done: make(chan struct{})}
	if err := r.Forward(node, url, q, 0, i); err != nil {
		return nil, err
	}
	<-i.done
	if i.verdict != nonce.Answered || i.res.Err != nil {
		return nil, fmt.Errorf("asking node %.128q: %w", node, i.res.Err)
	}
	return i.res.Said, nil
}

// statusSaid reads what a chain says of a signer.
func statusSaid(q asked, result []byte) (answer, error) {
	var got wire.StatusResult
	if err := wire.Unmarshal(result, &got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if got.Signer != q.signer {
		return answer{}, nonsense("the state of %.140q, which was not asked for", got.Signer)
	}
	c := got.Chain
	if c == nil {
		return answer{said: new(nonce.ChainSaid)}, nil
	}
	st := &nonce.ChainState{Head: c.Head, Mined: c.Mined, Claimed: c.Claimed, Window: c.Window, Stopped: c.Stopped}
	if c.Final != nil {
		st.Final, st.FinalKnown = *c.Final, true
	}
	for kind, g := range map[nonce.WatchKind]*wire.Gap{nonce.WatchGap: c.Gap, nonce.WatchStuck: c.Stuck, nonce.WatchDropped: c.Dropped} {
		if g == nil {
			continue
		}
		trouble, ok := gapOf(g)
		if !ok || st.Trouble != nil {
			return answer{}, nonsense("a gap of a signer, of nonce %d in the state %.40q with the hash %.70q", g.Nonce, g.Status, g.TxHash)
		}
		trouble.Kind, st.Trouble = kind, trouble
	}
	return answer{said: &nonce.ChainSaid{State: st, Partial: c.Partial}}, nil
}

func gapOf(g *wire.Gap) (*nonce.Gap, bool) {
	status, unknown := statusOf(g.Status)
	hash, err := nonce.ParseTxHash(g.TxHash)
	return &nonce.Gap{
		Nonce: g.Nonce, Since: time.Time(g.Since), Status: status, Unknown: unknown, Attempt: g.Attempt, TxHash: hash, Blocked: g.Blocked,
	}, g.Nonce >= 0 && (g.Status == "" || status != 0) && (g.TxHash == "" || err == nil)
}

// listSaid reads what a chain says of nonces.
func listSaid(result []byte) (answer, error) {
	var got wire.ListResult
	if err := wire.Unmarshal(result, &got); err != nil {
		return answer{}, nonsense("%w", err)
	}
	if len(got.Allocations) > wire.MaxListLimit {
		return answer{}, nonsense("a list of %d nonces", len(got.Allocations))
	}
	said := &nonce.ChainSaid{Words: make([]nonce.ChainWord, len(got.Allocations))}
	for i, a := range got.Allocations {
		said.Words[i] = nonce.ChainWord{Nonce: a.Nonce, Attempt: a.Attempt, Word: a.Chain}
	}
	return answer{said: said}, nil
}
