package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"noncegate/client"
	"noncegate/nonce"
	"noncegate/wire"
)

// SignerFilters are the words of the list of signers, and what
// they select in the store. stopped is what this node has stopped.
var SignerFilters = map[string]nonce.SignerFilter{
	"all": nonce.AllSigners, filterGap: nonce.TroubledSigners, "unknown": nonce.UnknownSigners, "overdue": nonce.OverdueSigners,
	"repeated": nonce.RepeatSigners, filterStopped: nonce.AllSigners,
}

const (
	filterGap     = "gap"
	filterStopped = "stopped"
	FilterWords   = "all, gap, unknown, overdue, repeated or stopped"
	MaxSignerList = 1000
)

// SignerList is a page of signers. Next is the name to go on after; "": that
// was all.
type SignerList struct {
	Node    string         `json:"node"`
	Signers []ListedSigner `json:"signers"`
	Next    string         `json:"next,omitempty"`
	// Others: of a list of gaps, Next is of its second part.
	Others bool `json:"others,omitempty"`
}

// ListedSigner is one signer with what stands out about it. Of one that the performance
// engine serves it is what PostgreSQL has.
type ListedSigner struct {
	Signer         string    `json:"signer"`
	Next           int64     `json:"next"`
	Floor          int64     `json:"floor"`
	Held           int64     `json:"held"`
	Unknown        int64     `json:"unknown"`
	Released       int64     `json:"released"`
	LowestReleased *int64    `json:"lowestReleased,omitempty"`
	OldestHold     time.Time `json:"oldestHold,omitzero"`
	MaxAttempt     int64     `json:"maxAttempt,omitempty"`
	Owner          string    `json:"owner,omitempty"`
	Mined          *int64    `json:"mined,omitempty"` // by its chain, as far as this node, or the store, knows
	Gap            *int64    `json:"gap,omitempty"`   // the lowest nonce that its chain has not used, where Trouble says what is wrong with it
	Trouble        string    `json:"trouble,omitempty"`
	Since          time.Time `json:"since,omitzero"`
	Stopped        bool      `json:"stopped,omitempty"`
	Unreadable     bool      `json:"unreadable,omitempty"` // what is open of it cannot be read, and is not counted
}

// SignersQuestion is which signers to list.
type SignersQuestion struct {
	Filter string `json:"filter,omitempty"` // one of SignerFilters
	After  string `json:"after,omitempty"`  // only names behind this one
	Limit  string `json:"limit,omitempty"`  // 1 to MaxSignerList; "": 100
	Others string `json:"others,omitempty"` // true: of a list of gaps, from its second part on
}

// limitOf reads a limit of 1 to 1000.
func limitOf(text string, otherwise int) (int, error) {
	n, err := strconv.Atoi(cmp.Or(text, strconv.Itoa(otherwise)))
	if err != nil || n < 1 || n > MaxSignerList {
		return 0, &badQuestion{why: fmt.Sprintf("limit: must be 1 to %d", MaxSignerList)}
	}
	return n, nil
}

func (a *Server) listSigners(ctx context.Context, asked SignersQuestion) (out SignerList, err error) {
	limit, err := limitOf(asked.Limit, 100)
	if err != nil {
		return out, err
	}
	filter := cmp.Or(asked.Filter, "all")
	q := nonce.SignersQuery{After: asked.After, Limit: limit + 1}
	var known bool
	if q.Filter, known = SignerFilters[filter]; !known {
		return out, &badQuestion{why: fmt.Sprintf("filter: %.40q must be %s", filter, FilterWords)}
	}
	stopped := a.cfg.Service.Stopped(MaxSignerList)
	if filter == filterStopped {
		q.Names = append([]string{}, stopped...)
	}
	rows, others, err := a.figuresOf(ctx, filter, asked.Others == "true", q)
	if err != nil {
		return out, err
	}
	out = SignerList{Node: a.cfg.Node, Signers: []ListedSigner{}}
	if len(rows) > limit {
		rows = rows[:limit]
		out.Next, out.Others = rows[limit-1].Signer, others
	}
	for i := range rows {
		out.Signers = append(out.Signers, a.listed(&rows[i], slices.Contains(stopped, rows[i].Signer)))
	}
	return out, nil
}

// figuresOf reads a page. That of gaps has two parts: first the signers that do not move on their
// chain, as their owners have found, and then those of no chain with a released nonce below others.
// inOthers: the page ends in the second part.
func (a *Server) figuresOf(
	ctx context.Context, filter string, others bool, q nonce.SignersQuery,
) (rows []nonce.SignerFigures, inOthers bool, err error) {
	if filter != filterGap || !others {
		rows, err = a.cfg.Store.Signers(ctx, q)
		if filter != filterGap || err != nil || len(rows) == q.Limit {
			return rows, false, err
		}
		q.After = ""
	}
	q.Filter = nonce.GapSigners
	q.Limit -= len(rows)
	more, err := a.cfg.Store.Signers(ctx, q)
	// Where the page ends with the first part, the second one begins behind the name that is named.
	return append(rows, more...), others || len(more) > 1, err
}

func (a *Server) listed(f *nonce.SignerFigures, stopped bool) ListedSigner {
	s := ListedSigner{
		Signer: f.Signer, Next: f.Next, Floor: f.Floor, Held: f.Held, Unknown: f.Unknown, Released: f.Released,
		OldestHold: f.OldestHold, MaxAttempt: f.MaxAttempt, Owner: f.Owner, Stopped: stopped, Unreadable: f.Unreadable,
	}
	if w := f.Watch; w.Kind.Trouble() {
		s.Gap, s.Trouble, s.Since = &w.Nonce, w.Kind.String(), w.SinceTime()
	}
	if f.LowestReleased >= 0 {
		s.LowestReleased = &f.LowestReleased
	}
	if a.cfg.Chains != nil {
		s.Mined = s.Gap // the lowest nonce that is not used, while this node does not know more
		a.cfg.Chains.LookAt(f.Signer, f.Next)
		if st, ok := a.cfg.Chains.State(f.Signer); ok {
			s.Mined = &st.Mined
		}
	}
	return s
}

// SignerQuestion is which signer to show.
type SignerQuestion struct {
	Signer string `json:"signer"`
	Nonce  string `json:"nonce,omitempty"` // the highest of the last nonces; "": of all
	Limit  string `json:"limit,omitempty"` // most holds, and most of the last nonces, 1 to 1000; "": 20
}

// SignerView is a signer with its newest nonces. Its parts were read one after the other,
// so what happens meanwhile may be in one and not in another.
type SignerView struct {
	Known  bool              `json:"known"` // something of it was handed out, or it has a floor
	Status wire.StatusResult `json:"status"`
	Holds  []wire.Allocation `json:"holds"` // from the lowest that still runs
	Last   []wire.Allocation `json:"last"`  // the highest nonces, or those up to the one that was asked for, the highest first
}

// ShowSigner reads the figures of the signer, and then of its allocations only what they say there is.
func (a *Server) showSigner(ctx context.Context, q SignerQuestion) (v SignerView, err error) {
	v.Holds, v.Last = []wire.Allocation{}, []wire.Allocation{}
	limit, err := limitOf(q.Limit, 20)
	if err != nil {
		return v, err
	}
	most, highest := int64(limit), int64(math.MaxInt64)
	if q.Nonce != "" {
		if highest, err = strconv.ParseInt(q.Nonce, 10, 64); err != nil || highest < 0 {
			return v, &badQuestion{why: "nonce: must be a whole number, 0 or higher"}
		}
	}
	return asClient(ctx, a, func(ctx context.Context, gateway *client.Client) (SignerView, error) {
		if v.Status, err = gateway.Status(ctx, q.Signer); err != nil {
			return v, err
		}
		v.Known = v.Status.Version != 0 || v.Status.Next != 0
		if lowest := v.Status.LowestHeld; lowest != nil {
			page, err := gateway.List(ctx, wire.ListParams{Signer: q.Signer, Status: wire.StatusHeld, From: *lowest, Limit: most})
			if err != nil {
				return v, err
			}
			v.Holds = page.Allocations
		}
		if v.Status.Next == 0 {
			return v, nil
		}
		highest = min(highest, v.Status.Next-1)
		page, err := gateway.List(ctx, wire.ListParams{Signer: q.Signer, From: max(highest+1-most, 0), Limit: most})
		if err == nil {
			v.Last = slices.DeleteFunc(page.Allocations, func(is wire.Allocation) bool { return is.Nonce > highest })
			slices.Reverse(v.Last)
		}
		return v, err
	})
}

// FloorOrder raises the floor of a signer.
type FloorOrder struct {
	Signer string `json:"signer"`
	Floor  int64  `json:"floor"`
	Because
}

func (o FloorOrder) about() (signer string, n int64, has bool) {
	return o.Signer, o.Floor, o.Signer != ""
}

func (a *Server) raiseFloor(ctx context.Context, o FloorOrder) (wire.FloorResult, error) {
	return asClient(ctx, a, func(ctx context.Context, gateway *client.Client) (wire.FloorResult, error) {
		return gateway.SetFloor(ctx, o.Signer, o.Floor)
	})
}

// MarkOrder is a nonce of which an operator says what became of it.
type MarkOrder struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Attempt int64  `json:"attempt"` // as the operator saw it; a later one is left alone
	Because
}

// MarkedNonce is what became of it.
type MarkedNonce struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Attempt int64  `json:"attempt"`
	Status  string `json:"status"`
}

func (o MarkOrder) about() (signer string, n int64, has bool) {
	return o.Signer, o.Nonce, o.Signer != ""
}

// ReleaseOrder gives a nonce back that was not used. If somebody may have used it, or it is below the floor, it is
// CONSUMED instead.
type ReleaseOrder struct {
	MarkOrder
	// Unsent: no node has a transaction that was recorded for it.
	Unsent bool `json:"unsent,omitempty"`
}

func (a *Server) releaseNonce(ctx context.Context, o ReleaseOrder) (MarkedNonce, error) {
	return a.mark(ctx, o.MarkOrder, nil, func(ctx context.Context, gateway *client.Client, h client.Hold) (wire.MarkResult, error) {
		reason := cmp.Or(o.Reason, "operator")
		if o.Unsent {
			return gateway.MarkRecyclable(ctx, h, reason, client.Unsent())
		}
		return gateway.MarkRecyclable(ctx, h, reason)
	})
}

// ConsumeOrder says that a nonce was used.
type ConsumeOrder struct {
	MarkOrder
	TxHash string `json:"txHash,omitempty"` // the transaction that used it, if it is known
	// Sure: it was used, although nothing shows that.
	Sure bool `json:"sure,omitempty"`
}

func (a *Server) consumeNonce(ctx context.Context, o ConsumeOrder) (MarkedNonce, error) {
	check := o.mayLeaveAHole
	if o.Sure || o.TxHash != "" {
		check = nil
	}
	return a.mark(ctx, o.MarkOrder, check, func(ctx context.Context, gateway *client.Client, h client.Hold) (wire.MarkResult, error) {
		return gateway.MarkUsed(ctx, h, o.TxHash)
	})
}

// mayLeaveAHole refuses a nonce of which nothing shows that it was sent with.
func (o ConsumeOrder) mayLeaveAHole(is *wire.Allocation) error {
	if is.Attempt != o.Attempt {
		now := fmt.Sprintf("conflict: nonce %d of %s is %s, attempt %d now", o.Nonce, o.Signer, is.Status, is.Attempt)
		return &badQuestion{now, http.StatusConflict}
	}
	used := []string{wire.ChainMined, wire.ChainFinal, wire.ChainUsed, wire.ChainExternal}
	if is.TxHash != "" || is.Status == wire.StatusConsumed || slices.Contains(used, is.Chain) {
		return nil
	}
	instead := "Release it instead"
	if is.Status == wire.StatusReleased {
		instead = "It is RELEASED, and the next client is given it: leave it so"
	}
	return &badQuestion{fmt.Sprintf("nothing shows that nonce %d of %s was sent with: if it was not, all later transactions wait behind it "+
		"for ever. %s, or give --tx-hash; if it was sent, say --yes", o.Nonce, o.Signer, instead), http.StatusConflict}
}

// mark marks the nonce, if the attempt that was named is the current one, and check, which may be nil, does not refuse
// it as it is.
func (a *Server) mark(
	ctx context.Context, o MarkOrder, check func(*wire.Allocation) error,
	do func(context.Context, *client.Client, client.Hold) (wire.MarkResult, error),
) (MarkedNonce, error) {
	if o.Attempt < 1 {
		return MarkedNonce{}, &badQuestion{why: "attempt: must be that of the nonce as it was seen, 1 or higher"}
	}
	return asClient(ctx, a, func(ctx context.Context, gateway *client.Client) (is MarkedNonce, err error) {
		if check != nil {
			page, err := gateway.List(ctx, wire.ListParams{Signer: o.Signer, From: o.Nonce, Limit: 1})
			if err != nil {
				return is, err
			}
			if len(page.Allocations) == 0 || page.Allocations[0].Nonce != o.Nonce {
				return is, &badQuestion{fmt.Sprintf("nothing is known of nonce %d of %s", o.Nonce, o.Signer), http.StatusNotFound}
			}
			if err := check(&page.Allocations[0]); err != nil {
				return is, err
			}
		}
		r, err := do(ctx, gateway, client.Hold{Signer: o.Signer, Nonce: o.Nonce, Attempt: o.Attempt})
		return MarkedNonce{r.Signer, r.Nonce, r.Attempt, r.Status}, err
	})
}
