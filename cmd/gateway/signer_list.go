package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"noncegate/client"
	"noncegate/nonce"
	"noncegate/wire"
)

type signerListCmd struct {
	Filter string `default:"all"`
	After  string `placeholder:"SIGNER" help:"Only signers whose name comes after this one."`
	Others bool   `help:"With the filter gap: only signers of no chain."`
	Limit  int    `default:"100" min:"1" max:"1000" help:"Most signers to list."`
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerListCmd) Validate() error {
	if _, ok := signerFilters[c.Filter]; !ok {
		return settingErrorf("filter", "%q must be %s", c.Filter, filterWords)
	}
	return c.adminCmd.Validate()
}

// Run implements the command.
func (c *signerListCmd) Run(ctx context.Context, p *program) error {
	query := url.Values{"filter": {c.Filter}, "limit": {strconv.Itoa(c.Limit)}}
	if c.After != "" {
		query.Set("after", c.After)
	}
	if c.Others {
		query.Set("others", "true")
	}
	var list signerList
	if err := c.ask(ctx, http.MethodGet, "/signers?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	return c.print(p.stdout, &list, func(w io.Writer) error { return printSigners(w, &list) })
}

func printSigners(w io.Writer, list *signerList) error {
	if len(list.Signers) == 0 {
		_, err := fmt.Fprintln(w, "no such signers")
		return err
	}
	t := columns(w)
	fmt.Fprintln(t, "SIGNER\tNEXT\tFLOOR\tMINED\tHELD\tUNKNOWN\tRELEASED\tLOWEST RELEASED\tHIGHEST ATTEMPT\tOLDEST HOLD\tOWNER\tNOTE")
	for i := range list.Signers {
		s := &list.Signers[i]
		note := ""
		switch {
		case s.Unreadable:
			note = "its row cannot be read"
		case s.Stopped:
			note = "stopped: needs a floor"
		case s.Gap != nil:
			note = fmt.Sprintf(troubleNotes[s.Trouble], *s.Gap) + ", since " + s.Since.UTC().Format(time.RFC3339)
		}
		var attempt any = s.MaxAttempt
		if s.MaxAttempt == 0 {
			attempt = ""
		}
		t.row(s.Signer, s.Next, s.Floor, s.Mined, s.Held, s.Unknown, s.Released, s.LowestReleased, attempt, s.OldestHold, s.Owner, note)
	}
	if list.Next != "" {
		fmt.Fprintf(t, "and more: --after %s%s\n", list.Next, map[bool]string{true: " --others"}[list.Others])
	}
	return t.Flush()
}

// troubleNotes are what the list says of a signer whose transactions are not mined.
var troubleNotes = map[string]string{
	nonce.WatchGap.String():     "nonce %d blocks it",
	nonce.WatchDropped.String(): "the transaction of nonce %d is lost",
	nonce.WatchStuck.String():   "the transaction of nonce %d is not mined",
}

// signerMarkCmd is what the commands share that end a hold by hand.
type signerMarkCmd struct {
	Signer  string `arg:"" help:"The signer, as in nonce_allocate."`
	Nonce   int64  `arg:"" help:"The nonce."`
	Attempt int64  `default:"0" min:"0" help:"The attempt that is meant; a later one is left alone. 0: the current one, as it is read first."`
	lookCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerMarkCmd) Validate() error {
	return cmp.Or(notNegative("nonce", c.Nonce), c.GatewayURL.Validate())
}

type signerFloorCmd struct {
	Signer string `arg:"" help:"The signer, as in nonce_allocate."`
	Floor  int64  `arg:"" help:"No nonce below it is handed out any more. It is never lowered."`
	lookCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerFloorCmd) Validate() error {
	return cmp.Or(notNegative("floor", c.Floor), c.GatewayURL.Validate())
}

// Run implements the command.
func (c *signerFloorCmd) Run(ctx context.Context, p *program) error {
	return look(ctx, &c.lookCmd, p.stdout, func(ctx context.Context, gateway *client.Client) (wire.FloorResult, error) {
		return gateway.SetFloor(ctx, c.Signer, c.Floor)
	}, func(w io.Writer, r wire.FloorResult) error {
		_, err := fmt.Fprintf(w, "%s: floor %d, next %d\n", r.Signer, r.Floor, r.Next)
		return err
	})
}

type signerReleaseCmd struct {
	signerMarkCmd
	Reason string `default:"operator" help:"Why, as nonce_list shows it."`
	Unsent bool   `help:"No node has a transaction that was recorded for it: none was given one, or each that was has refused it for good."`
}

// Run implements the command.
func (c *signerReleaseCmd) Run(ctx context.Context, p *program) error {
	return c.run(ctx, p, nil, func(ctx context.Context, gateway *client.Client, h client.Hold) (r wire.MarkResult, err error) {
		if c.Unsent {
			r, err = gateway.MarkRecyclable(ctx, h, c.Reason, client.Unsent())
		} else {
			r, err = gateway.MarkRecyclable(ctx, h, c.Reason)
		}
		if err == nil && r.Status != wire.StatusReleased {
			err = fmt.Errorf("nonce %d of %s was not given back, it is %s: a transaction of it may still be mined "+
				"(say --unsent if no node has one), or it is below the floor", c.Nonce, c.Signer, r.Status)
		}
		return r, err
	})
}

type signerConsumeCmd struct {
	signerMarkCmd
	TxHash string `name:"tx-hash" placeholder:"HASH" help:"The transaction that used it, if it is known."`
	Yes    bool   `help:"Also where nothing shows that the nonce was sent with: if it was not, all later ones wait behind it."`
}

// Run implements the command.
func (c *signerConsumeCmd) Run(ctx context.Context, p *program) error {
	check := c.check
	if c.Yes || c.TxHash != "" {
		check = nil
	}
	return c.run(ctx, p, check, func(ctx context.Context, gateway *client.Client, h client.Hold) (wire.MarkResult, error) {
		return gateway.MarkUsed(ctx, h, c.TxHash)
	})
}

// check refuses what may leave a hole.
func (c *signerConsumeCmd) check(a *wire.Allocation) error {
	used := []string{wire.ChainMined, wire.ChainFinal, wire.ChainUsed, wire.ChainExternal}
	if a.TxHash != "" || a.Status == wire.StatusConsumed || slices.Contains(used, a.Chain) {
		return nil
	}
	instead := "Release it instead"
	if a.Status == wire.StatusReleased {
		instead = "It is RELEASED, and the next client is given it: leave it so"
	}
	return fmt.Errorf("nothing shows that nonce %d of %s was sent with: if it was not, all later transactions wait behind it for ever. %s, "+
		"or give --tx-hash; if it was sent, say --yes", c.Nonce, c.Signer, instead)
}

// run marks the nonce, of the attempt that was named or of the current one, unless check, which may
// be nil, refuses it as it is.
func (c *signerMarkCmd) run(
	ctx context.Context, p *program, check func(*wire.Allocation) error,
	mark func(context.Context, *client.Client, client.Hold) (wire.MarkResult, error),
) error {
	return look(ctx, &c.lookCmd, p.stdout, func(ctx context.Context, gateway *client.Client) (r wire.MarkResult, err error) {
		h := client.Hold{Signer: c.Signer, Nonce: c.Nonce, Attempt: c.Attempt}
		if h.Attempt == 0 || check != nil {
			page, err := gateway.List(ctx, wire.ListParams{Signer: c.Signer, From: c.Nonce, Limit: 1})
			if err != nil {
				return r, err
			}
			if len(page.Allocations) == 0 || page.Allocations[0].Nonce != c.Nonce {
				return r, fmt.Errorf("nothing is known of nonce %d of %s", c.Nonce, c.Signer)
			}
			a := &page.Allocations[0]
			if check != nil {
				if err := check(a); err != nil {
					return r, err
				}
			}
			h.Attempt = cmp.Or(h.Attempt, a.Attempt)
		}
		return mark(ctx, gateway, h)
	}, func(w io.Writer, r wire.MarkResult) error {
		_, err := fmt.Fprintf(w, "%s: nonce %d, attempt %d, is %s\n", r.Signer, r.Nonce, r.Attempt, r.Status)
		return err
	})
}
