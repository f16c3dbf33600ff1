package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"noncegate/internal/admin"
	"noncegate/nonce"
	"noncegate/wire"
)

type signerCmd struct {
	Show    signerShowCmd    `cmd:"" help:"Show a signer: cursor, floor, owner, what its chain says, open holds, last nonces."`
	List    signerListCmd    `cmd:"" help:"List signers with what stands out about them, such as gaps and holds of unknown outcome."`
	Floor   signerFloorCmd   `cmd:"" help:"Raise the floor of a signer."`
	Release signerReleaseCmd `cmd:"" help:"Give a nonce back that was not used."`
	Consume signerConsumeCmd `cmd:"" help:"Say that a nonce was used."`
	Repair  signerRepairCmd  `cmd:"" help:"Take the nonce that blocks a signer, for the principal of --token, or for the next client."`
}

type signerShowCmd struct {
	Signer string `arg:"" help:"The signer, as in nonce_allocate."`
	Limit  int    `default:"20" min:"1" max:"1000" help:"Most holds, and most of the last nonces, to show."`
	adminCmd
}

// Run implements the command.
func (c *signerShowCmd) Run(ctx context.Context, p *program) error {
	v, err := tell(ctx, p, &c.adminCmd, admin.ShowSigner, admin.SignerQuestion{Signer: c.Signer, Limit: strconv.Itoa(c.Limit)}, printSigner)
	if err == nil && !v.Known {
		err = fmt.Errorf("the signer %s is not known: nothing of it was ever handed out; gateway signer list shows those that are known",
			c.Signer)
	}
	return err
}

func printSigner(w io.Writer, v *admin.SignerView) error {
	s := &v.Status
	t := columns(w)
	fmt.Fprintf(t, "signer\t%s\n", s.Signer)
	fmt.Fprintf(t, "next\t%d\tfloor\t%d\tversion\t%d\n", s.Next, s.Floor, s.Version)
	fmt.Fprintf(t, "held\t%d\treleased\t%d\tconsumed\t%d\tunknown\t%d\n", s.Held, s.Released, s.Consumed, s.Unknown)
	printChain(t, s.Chain)
	if s.Owner != "" && s.LeaseUntil != nil {
		fmt.Fprintf(t, "owner\t%s\ttoken\t%d\tuntil\t%s\t%s\n", s.Owner, s.FencingToken, *s.LeaseUntil, s.OwnerURL)
	} else {
		fmt.Fprintf(t, "owner\tnobody\ttoken\t%d\n", s.FencingToken)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !v.Known {
		return nil
	}
	if err := printHolds(w, v); err != nil {
		return err
	}
	return printLast(w, v.Last)
}

// printChain prints what the signer's chain says, if one is asked.
func printChain(w io.Writer, c *wire.ChainStatus) {
	if c == nil {
		return
	}
	fmt.Fprintf(w, "mined\t%d\tfinal\t%s\twindow\t%d\tat block\t%d\n", c.Mined, cmp.Or(cell(c.Final), "-"), c.Window, c.Head)
	if c.Claimed != 0 {
		fmt.Fprintf(w, "claimed\t%d\tby one node, while the others are away or behind: only the window follows\n", c.Claimed)
	}
	if c.Stopped {
		fmt.Fprintf(w, "chain\tits final block fell: nothing is done by itself until the gateway is started again\n")
	}
	if c.Partial {
		fmt.Fprintf(w, "partial\tthe owner could not be asked: this is what is stored, and what the node that was asked knows\n")
	}
	for word, g := range map[string]*wire.Gap{"gap": c.Gap, "stuck": c.Stuck, "dropped": c.Dropped} {
		if g == nil { // one at most is there
			continue
		}
		fmt.Fprintf(w, word+"\tnonce %d\tsince\t%s\tblocks\t%d\t%s\n", g.Nonce, g.Since, g.Blocked, cmp.Or(g.Status, "never handed out"))
	}
}

func printHolds(w io.Writer, v *admin.SignerView) error {
	if len(v.Holds) == 0 {
		_, err := fmt.Fprintln(w, "\nno open holds")
		return err
	}
	fmt.Fprintln(w, "\nopen holds")
	t := list(w, "NONCE\tSTATUS\tATTEMPT\tUNTIL\tHOLDER\tREQUEST\tHASH OR REASON", v.Holds, func(a *wire.Allocation) []any {
		return []any{a.Nonce, a.Status, a.Attempt, a.HeldUntil, a.Holder, a.RequestID, cmp.Or(a.TxHash, a.Reason)}
	})
	if more := v.Status.Held - int64(len(v.Holds)); more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	return t.Flush()
}

func printLast(w io.Writer, last []wire.Allocation) error {
	if len(last) == 0 {
		_, err := fmt.Fprintln(w, "\nno nonce was handed out lately")
		return err
	}
	fmt.Fprintln(w, "\nlast nonces")
	return printNonces(w, last)
}

func printNonces(w io.Writer, nonces []wire.Allocation) error {
	return list(w, "NONCE\tSTATUS\tCHAIN\tATTEMPT\tCHANGED\tHOLDER\tREQUEST\tHASH OR REASON", nonces, func(a *wire.Allocation) []any {
		what := cmp.Or(a.TxHash, a.Reason)
		if more := len(a.TxHashes) - 1; more > 0 {
			what += fmt.Sprintf(" and %d before", more)
		}
		return []any{a.Nonce, a.Status, a.Chain, a.Attempt, a.UpdatedAt, a.Holder, a.RequestID, what}
	}).Flush()
}

type signerListCmd struct {
	Filter string `default:"all"`
	After  string `placeholder:"SIGNER" help:"Only signers whose name comes after this one."`
	Others bool   `help:"With the filter gap: only signers of no chain."`
	Prefix string `placeholder:"TEXT" help:"Only signers whose name begins so."`
	Limit  int    `default:"100" min:"1" max:"1000" help:"Most signers to list."`
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerListCmd) Validate() error {
	if _, ok := admin.SignerFilters[c.Filter]; !ok {
		return settingErrorf("filter", "%q must be %s", c.Filter, admin.FilterWords)
	}
	return c.adminCmd.Validate()
}

// Run implements the command.
func (c *signerListCmd) Run(ctx context.Context, p *program) error {
	others := map[bool]string{true: "true"}[c.Others]
	q := admin.SignersQuestion{Filter: c.Filter, After: c.After, Limit: strconv.Itoa(c.Limit), Others: others, Prefix: c.Prefix}
	_, err := tell(ctx, p, &c.adminCmd, admin.ListSigners, q, printSigners)
	return err
}

func printSigners(w io.Writer, v *admin.SignerList) error {
	if len(v.Signers) == 0 {
		_, err := fmt.Fprintln(w, "no such signers")
		return err
	}
	const heading = "SIGNER\tNEXT\tFLOOR\tMINED\tHELD\tUNKNOWN\tRELEASED\tLOWEST RELEASED\tHIGHEST ATTEMPT\tOLDEST HOLD\tOWNER\tNOTE"
	t := list(w, heading, v.Signers, func(s *admin.ListedSigner) []any {
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
		return []any{s.Signer, s.Next, s.Floor, s.Mined, s.Held, s.Unknown, s.Released, s.LowestReleased, attempt, s.OldestHold, s.Owner, note}
	})
	if v.Next != "" {
		fmt.Fprintf(t, "and more: --after %s%s\n", v.Next, map[bool]string{true: " --others"}[v.Others])
	}
	return t.Flush()
}

// troubleNotes are what the list says of a signer whose transactions are not mined.
var troubleNotes = map[string]string{
	nonce.WatchGap.String():     "nonce %d blocks it",
	nonce.WatchDropped.String(): "the transaction of nonce %d is lost",
	nonce.WatchStuck.String():   "the transaction of nonce %d is not mined",
}

type signerFloorCmd struct {
	Signer string `arg:"" help:"The signer, as in nonce_allocate."`
	Floor  int64  `arg:"" help:"No nonce below it is handed out any more. It is never lowered."`
	Why
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerFloorCmd) Validate() error {
	return cmp.Or(notNegative("floor", c.Floor), c.adminCmd.Validate())
}

// Run implements the command.
func (c *signerFloorCmd) Run(ctx context.Context, p *program) error {
	o := admin.FloorOrder{Signer: c.Signer, Floor: c.Floor, Because: c.because()}
	_, err := tell(ctx, p, &c.adminCmd, admin.RaiseFloor, o, func(w io.Writer, r *admin.RaisedFloor) error {
		return foreseen(w, &r.Foreseen, func() error {
			_, err := fmt.Fprintf(w, "%s: floor %d, next %d\n", r.Signer, r.Floor, r.Next)
			return err
		})
	})
	return err
}

// signerMarkCmd is what the commands share that end a hold by hand.
type signerMarkCmd struct {
	Signer  string `arg:"" help:"The signer, as in nonce_allocate."`
	Nonce   int64  `arg:"" help:"The nonce."`
	Attempt int64  `default:"0" min:"0" help:"The attempt that is meant; a later one is left alone. 0: the current one, which is shown first."`
	Why
	adminCmd
}

// Validate reports the first argument that cannot be used.
func (c *signerMarkCmd) Validate() error {
	return cmp.Or(notNegative("nonce", c.Nonce), c.adminCmd.Validate())
}

// order is the order for the attempt that was named. Without one the nonce is read, and shown as it is.
func (c *signerMarkCmd) order(ctx context.Context, p *program) (admin.MarkOrder, error) {
	o := admin.MarkOrder{Signer: c.Signer, Nonce: c.Nonce, Attempt: c.Attempt, Because: c.because()}
	if o.Attempt != 0 {
		return o, nil
	}
	q := admin.SignerQuestion{Signer: c.Signer, Nonce: strconv.FormatInt(c.Nonce, 10), Limit: "1"}
	v, err := ask(ctx, &c.adminCmd, admin.ShowSigner, q)
	switch {
	case err != nil:
		return o, err
	case len(v.Last) == 0 || v.Last[0].Nonce != c.Nonce:
		return o, fmt.Errorf("nothing is known of nonce %d of %s", c.Nonce, c.Signer)
	}
	o.Attempt = v.Last[0].Attempt
	return o, printNonces(p.stderr, v.Last)
}

func printMark(w io.Writer, r *admin.MarkedNonce) error {
	return foreseen(w, &r.Foreseen, func() error {
		_, err := fmt.Fprintf(w, "%s: nonce %d, attempt %d, is %s\n", r.Signer, r.Nonce, r.Attempt, r.Status)
		return err
	})
}

type signerReleaseCmd struct {
	signerMarkCmd
	Unsent bool `help:"No node has a transaction that was recorded for it: none was given one, or each that was has refused it for good."`
}

// Run implements the command. A nonce that is consumed instead makes it fail.
func (c *signerReleaseCmd) Run(ctx context.Context, p *program) error {
	o, err := c.order(ctx, p)
	if err != nil {
		return err
	}
	r, err := tell(ctx, p, &c.adminCmd, admin.ReleaseNonce, admin.ReleaseOrder{MarkOrder: o, Unsent: c.Unsent}, printMark)
	if err == nil && r.Status != wire.StatusReleased {
		err = fmt.Errorf("nonce %d of %s is %s now and was not given back: a transaction of it may be mined, or it is below the floor",
			r.Nonce, r.Signer, r.Status)
	}
	return err
}

type signerConsumeCmd struct {
	signerMarkCmd
	TxHash string `name:"tx-hash" placeholder:"HASH" help:"The transaction that used it, if it is known."`
	Yes    bool   `help:"Also where nothing shows that the nonce was sent with: if it was not, all later ones wait behind it."`
}

// Run implements the command.
func (c *signerConsumeCmd) Run(ctx context.Context, p *program) error {
	o, err := c.order(ctx, p)
	if err == nil {
		_, err = tell(ctx, p, &c.adminCmd, admin.ConsumeNonce, admin.ConsumeOrder{MarkOrder: o, TxHash: c.TxHash, Sure: c.Yes}, printMark)
	}
	return err
}

type signerRepairCmd struct {
	Signer      string        `arg:"" help:"The signer, as in nonce_allocate."`
	Nonce       *int64        `arg:"" optional:"" help:"The nonce. Default: the lowest that the chain has not used."`
	Attempt     *int64        `placeholder:"N" help:"The attempt that is meant; a later one is left alone. Default: any."`
	Hold        time.Duration `default:"0s" min:"0s" help:"How long it is held. 0: 5 minutes, or --max-hold of the gateway where that is shorter."`
	ThenRelease bool          `help:"Give it back at once, so that the next client has it. Only if no node has a transaction of it."`
	Why
	adminCmd
}

// Run implements the command.
func (c *signerRepairCmd) Run(ctx context.Context, p *program) error {
	o := admin.RepairOrder{
		Signer: c.Signer, Nonce: c.Nonce, Attempt: c.Attempt, HoldMs: c.Hold.Milliseconds(), ThenRelease: c.ThenRelease, Because: c.because(),
	}
	_, err := tell(ctx, p, &c.adminCmd, admin.RepairNonce, o, func(w io.Writer, r *admin.RepairedNonce) error {
		return printMark(w, &r.MarkedNonce)
	})
	return err
}
