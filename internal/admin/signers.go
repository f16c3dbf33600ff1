package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	Prefix string `json:"prefix,omitempty"` // only names that begin with it
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
	prefix, err := prefixOf(asked.Prefix)
	if err != nil {
		return out, err
	}
	rows, others, err := a.figuresOf(ctx, filter, prefix, asked.Others == "true", q)
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
	ctx context.Context, filter, prefix string, others bool, q nonce.SignersQuery,
) (rows []nonce.SignerFigures, inOthers bool, err error) {
	if filter != filterGap || !others {
		rows, err = a.part(ctx, prefix, q)
		if filter != filterGap || err != nil || len(rows) == q.Limit {
			return rows, false, err
		}
		q.After = ""
	}
	q.Filter = nonce.GapSigners
	q.Limit -= len(rows)
	more, err := a.part(ctx, prefix, q)
	// Where the page ends with the first part, the second one begins behind the name that is named.
	return append(rows, more...), others || len(more) > 1, err
}

// part reads one, of names with a prefix. Names are in the order of their bytes, so those with it are beside each other.
func (a *Server) part(ctx context.Context, prefix string, q nonce.SignersQuery) ([]nonce.SignerFigures, error) {
	if prefix != "" { // all names above this one are at or above the prefix
		last := len(prefix) - 1
		q.After = max(q.After, prefix[:last]+string(prefix[last]-1)+strings.Repeat("~", nonce.MaxKeyBytes))
	}
	rows, err := a.cfg.Store.Signers(ctx, q)
	end := slices.IndexFunc(rows, func(f nonce.SignerFigures) bool { return !strings.HasPrefix(f.Signer, prefix) })
	if end >= 0 {
		rows = rows[:end]
	}
	return rows, err
}

// prefixOf reads a prefix of signers, whose addresses are in lower case.
func prefixOf(text string) (string, error) {
	if len(text) > nonce.MaxKeyBytes || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &badQuestion{why: fmt.Sprintf("prefix: must be at most %d visible ASCII characters", nonce.MaxKeyBytes)}
	}
	if at := strings.LastIndex(text, "0x"); at >= 0 {
		return text[:at] + strings.ToLower(text[at:]), nil
	}
	return text, nil
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
	Known   bool              `json:"known"`             // something of it was handed out, or it has a floor
	Holders bool              `json:"holders,omitempty"` // the caller is told who holds nonces: it may do something about that
	Status  wire.StatusResult `json:"status"`
	Holds   []wire.Allocation `json:"holds"` // from the lowest that still runs
	Last    []wire.Allocation `json:"last"`  // the highest nonces, or those up to the one that was asked for, the highest first
}

// ShowSigner reads the figures of the signer, and then of its allocations only what they say there is.
func (a *Server) showSigner(ctx context.Context, q SignerQuestion) (v SignerView, err error) {
	v.Holds, v.Last = []wire.Allocation{}, []wire.Allocation{}
	limit, err := limitOf(q.Limit, 20)
	if err != nil {
		return v, err
	}
	by, _ := callerOf(ctx)
	v.Holders = by.session.SeesHolders(q.Signer)
	most, highest := int64(limit), int64(math.MaxInt64)
	if q.Nonce != "" {
		if highest, err = strconv.ParseInt(q.Nonce, 10, 64); err != nil || highest < 0 {
			return v, &badQuestion{why: "nonce: must be a whole number, 0 or higher"}
		}
	}
	return asClient(ctx, a, false, func(ctx context.Context, gateway *client.Client) (SignerView, error) {
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
	// Version is that of the signer as the operator saw it: one that was written since is left alone. nil: any.
	Version *int64 `json:"version,omitempty"`
	Because
}

func (o FloorOrder) about() (signer string, n int64, has bool) {
	return o.Signer, o.Floor, o.Signer != ""
}

// RaisedFloor is the floor as it is, or would be, after that.
type RaisedFloor struct {
	Signer string `json:"signer"`
	Floor  int64  `json:"floor"`
	Next   int64  `json:"next"`
	Foreseen
}

func (a *Server) raiseFloor(ctx context.Context, o FloorOrder) (RaisedFloor, error) {
	return asClient(ctx, a, o.DryRun, func(ctx context.Context, gateway *client.Client) (r RaisedFloor, err error) {
		was, err := gateway.Status(ctx, o.Signer)
		if o.Version == nil {
			err = seen(err)
		}
		if err != nil {
			return r, err
		}
		if o.Version != nil && was.Version != *o.Version {
			return r, &badQuestion{fmt.Sprintf("conflict: the signer was written since it was seen: it has version %d, floor %d and next %d now",
				was.Version, was.Floor, was.Next), http.StatusConflict}
		}
		is, err := gateway.SetFloor(ctx, o.Signer, o.Floor)
		r = RaisedFloor{Signer: is.Signer, Floor: is.Floor, Next: is.Next}
		r.foresee(o.Because, &Before{Signer: &was}, fmt.Sprint(was.Floor), fmt.Sprint(is.Floor),
			fmt.Sprintf("the floor of %s goes from %d to %d, and its next nonce from %d to %d", o.Signer, was.Floor, is.Floor, was.Next, is.Next))
		return r, err
	})
}

// seen is the error of a look at what an act is about. Who may not look may act all the same, and sees less.
func seen(err error) error {
	if refused, ok := errors.AsType[*wire.Error](err); ok && refused.Code == wire.CodeForbidden {
		return nil
	}
	return err
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
	Foreseen
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
		return giveBack(ctx, gateway, h, o.Reason, o.Unsent)
	})
}

func giveBack(ctx context.Context, gateway *client.Client, h client.Hold, reason string, unsent bool) (wire.MarkResult, error) {
	if reason = cmp.Or(reason, "operator"); unsent {
		return gateway.MarkRecyclable(ctx, h, reason, client.Unsent())
	}
	return gateway.MarkRecyclable(ctx, h, reason)
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
	return asClient(ctx, a, o.DryRun, func(ctx context.Context, gateway *client.Client) (is MarkedNonce, err error) {
		was, err := nonceNow(ctx, gateway, o.Signer, o.Nonce)
		if check == nil {
			err = seen(err)
		}
		switch {
		case err != nil:
			return is, err
		case check != nil && was == nil:
			return is, &badQuestion{fmt.Sprintf("nothing is known of nonce %d of %s", o.Nonce, o.Signer), http.StatusNotFound}
		case check != nil:
			if err := check(was); err != nil {
				return is, err
			}
		}
		r, err := do(ctx, gateway, client.Hold{Signer: o.Signer, Nonce: o.Nonce, Attempt: o.Attempt})
		is = MarkedNonce{Signer: r.Signer, Nonce: r.Nonce, Attempt: r.Attempt, Status: r.Status}
		is.foresee(o.Because, beforeOf(was), statusOfNonce(was), r.Status, fmt.Sprintf("nonce %d of %s, attempt %d, which is %s, becomes %s",
			r.Nonce, r.Signer, r.Attempt, statusOfNonce(was), r.Status))
		return is, err
	})
}

// nonceNow is the nonce as it is; nil: nothing is known of it.
func nonceNow(ctx context.Context, gateway *client.Client, signer string, n int64) (*wire.Allocation, error) {
	page, err := gateway.List(ctx, wire.ListParams{Signer: signer, From: n, Limit: 1})
	if err != nil || len(page.Allocations) == 0 || page.Allocations[0].Nonce != n {
		return nil, err
	}
	return &page.Allocations[0], nil
}

func beforeOf(is *wire.Allocation) *Before {
	if is == nil {
		return nil
	}
	return &Before{Nonce: is}
}

func statusOfNonce(is *wire.Allocation) string {
	if is == nil {
		return "not shown"
	}
	return is.Status
}

// RepairOrder takes the nonce that blocks a signer from whoever had it, for the caller.
type RepairOrder struct {
	Signer string `json:"signer"`
	Nonce  *int64 `json:"nonce,omitempty"` // nil: the lowest that the chain has not used
	// Attempt is that of the nonce as the operator saw it, 0 of one that was never handed out; a later one is left
	// alone. nil: any.
	Attempt *int64 `json:"attempt,omitempty"`
	HoldMs  int64  `json:"holdMs,omitempty"` // 0: 5 minutes, for a person has to sign, or --max-hold where that is shorter
	// ThenRelease gives it back at once, so that the next client that allocates has it: no node has a transaction of it.
	ThenRelease bool `json:"thenRelease,omitempty"`
	Because
}

func (o RepairOrder) about() (signer string, n int64, has bool) {
	if o.Nonce == nil {
		return o.Signer, 0, false
	}
	return o.Signer, *o.Nonce, o.Signer != ""
}

// repairHold is how long a repaired nonce is held for somebody who does not say.
const repairHold = 5 * time.Minute

// RepairedNonce is the nonce, which the caller holds unless Status is RELEASED or CONSUMED.
type RepairedNonce struct {
	MarkedNonce
	HeldUntil *wire.Time `json:"heldUntil,omitempty"`
	HoldMs    int64      `json:"holdMs,omitempty"`
	TxHashes  []string   `json:"txHashes,omitempty"` // that were recorded for it before, and may still be mined
}

func (a *Server) repairNonce(ctx context.Context, o RepairOrder) (RepairedNonce, error) {
	if o.HoldMs < 0 {
		return RepairedNonce{}, &badQuestion{why: "holdMs: must be 0 or more"}
	}
	return asClient(ctx, a, o.DryRun, func(ctx context.Context, gateway *client.Client) (is RepairedNonce, err error) {
		var was *wire.Allocation
		if o.Nonce != nil {
			if was, err = nonceNow(ctx, gateway, o.Signer, *o.Nonce); seen(err) != nil {
				return is, err
			}
			if o.Attempt != nil && was != nil && was.Attempt != *o.Attempt {
				return is, &badQuestion{fmt.Sprintf("conflict: nonce %d of %s is %s, attempt %d now", *o.Nonce, o.Signer, was.Status, was.Attempt),
					http.StatusConflict}
			}
		}
		hold := cmp.Or(time.Duration(o.HoldMs)*time.Millisecond, min(repairHold, a.cfg.MaxHold))
		r, err := gateway.Repair(ctx, client.RepairRequest{Signer: o.Signer, Nonce: o.Nonce, Hold: hold})
		if err != nil {
			return is, err
		}
		is = RepairedNonce{
			MarkedNonce: MarkedNonce{Signer: r.Signer, Nonce: r.Nonce, Attempt: r.Attempt, Status: wire.StatusHeld},
			HeldUntil:   &r.HeldUntil, HoldMs: r.HoldMs, TxHashes: r.TxHashes,
		}
		would := fmt.Sprintf("nonce %d of %s, which is %s, becomes yours with a new attempt", r.Nonce, r.Signer, statusOfNonce(was))
		if o.ThenRelease {
			would += ", and is given back at once"
		}
		if o.ThenRelease && !o.DryRun {
			var back wire.MarkResult
			if back, err = giveBack(ctx, gateway, r.Hold(), o.Reason, true); err != nil {
				err = fmt.Errorf("nonce %d of %s is yours with attempt %d, and was not given back: %w", r.Nonce, r.Signer, r.Attempt, err)
				return is, &halfDone{err}
			}
			is.Status, is.HeldUntil, is.HoldMs = back.Status, nil, 0
		}
		is.foresee(o.Because, beforeOf(was), statusOfNonce(was), fmt.Sprintf("%s, attempt %d", is.Status, is.Attempt), would)
		return is, nil
	})
}
