package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"noncegate/nonce"
)

// signerFilters are the words of GET /signers and of gateway signer list, and what
// they select in the store. stopped is what this node has stopped.
var signerFilters = map[string]nonce.SignerFilter{
	"all": nonce.AllSigners, filterGap: nonce.TroubledSigners, "unknown": nonce.UnknownSigners, "overdue": nonce.OverdueSigners,
	"repeated": nonce.RepeatSigners, filterStopped: nonce.AllSigners,
}

const (
	filterGap     = "gap"
	filterStopped = "stopped"
	filterWords   = "all, gap, unknown, overdue, repeated or stopped"
	maxSignerList = 1000
)

// signerList is the answer to GET /signers. Next is the name to go on after; "": that
// was all.
type signerList struct {
	Node    string         `json:"node"`
	Signers []listedSigner `json:"signers"`
	Next    string         `json:"next,omitempty"`
	// Others: of a list of gaps, Next is of its second part.
	Others bool `json:"others,omitempty"`
}

// listedSigner is one signer with what stands out about it. Of one that the performance
// engine serves it is what PostgreSQL has.
type listedSigner struct {
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

// signerHandlers adds the list of signers to the private side.
func (a *app) signerHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /signers", answering(func(r *http.Request) (any, error) {
		q, err := signersQuestion(r)
		if err != nil {
			return nil, &badQuestion{why: err.Error()}
		}
		return a.listSigners(r.Context(), r.FormValue("filter"), r.FormValue("others") != "", q)
	}))
}

func signersQuestion(r *http.Request) (q nonce.SignersQuery, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return q, errors.New("the parameters cannot be read")
	}
	for name, given := range values {
		if !slices.Contains([]string{"filter", "after", "limit", "others"}, name) {
			return q, fmt.Errorf("%.40q: there are filter, after, limit and others", name)
		}
		if len(given) > 1 {
			return q, fmt.Errorf("%s: given twice", name)
		}
	}
	q.After, q.Limit = r.FormValue("after"), 100
	if word := r.FormValue("filter"); word != "" {
		var known bool
		q.Filter, known = signerFilters[word]
		if !known {
			return q, fmt.Errorf("filter: %.40q must be %s", word, filterWords)
		}
	}
	if text := r.FormValue("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxSignerList {
			return q, fmt.Errorf("limit: must be 1 to %d", maxSignerList)
		}
	}
	return q, nil
}

func (a *app) listSigners(ctx context.Context, filter string, others bool, q nonce.SignersQuery) (*signerList, error) {
	stopped := a.service.Stopped(maxSignerList)
	if filter == filterStopped {
		q.Names = append([]string{}, stopped...)
	}
	limit := q.Limit
	q.Limit++
	rows, others, err := a.figuresOf(ctx, filter, others, q)
	if err != nil {
		return nil, err
	}
	out := &signerList{Node: a.node, Signers: []listedSigner{}}
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
func (a *app) figuresOf(
	ctx context.Context, filter string, others bool, q nonce.SignersQuery,
) (rows []nonce.SignerFigures, inOthers bool, err error) {
	if filter != filterGap || !others {
		rows, err = a.store.Signers(ctx, q)
		if filter != filterGap || err != nil || len(rows) == q.Limit {
			return rows, false, err
		}
		q.After = ""
	}
	q.Filter = nonce.GapSigners
	q.Limit -= len(rows)
	more, err := a.store.Signers(ctx, q)
	// Where the page ends with the first part, the second one begins behind the name that is named.
	return append(rows, more...), others || len(more) > 1, err
}

func (a *app) listed(f *nonce.SignerFigures, stopped bool) listedSigner {
	s := listedSigner{
		Signer: f.Signer, Next: f.Next, Floor: f.Floor, Held: f.Held, Unknown: f.Unknown, Released: f.Released,
		OldestHold: f.OldestHold, MaxAttempt: f.MaxAttempt, Owner: f.Owner, Stopped: stopped, Unreadable: f.Unreadable,
	}
	if w := f.Watch; w.Kind.Trouble() {
		s.Gap, s.Trouble, s.Since = &w.Nonce, w.Kind.String(), w.SinceTime()
	}
	if f.LowestReleased >= 0 {
		s.LowestReleased = &f.LowestReleased
	}
	if a.chains != nil {
		s.Mined = s.Gap // the lowest nonce that is not used, while this node does not know more
		a.chains.LookAt(f.Signer, f.Next)
		if st, ok := a.chains.State(f.Signer); ok {
			s.Mined = &st.Mined
		}
	}
	return s
}
