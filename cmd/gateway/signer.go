package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"noncegate/client"
	"noncegate/wire"
)

type signerCmd struct {
	Show    signerShowCmd    `cmd:"" help:"Show a signer: cursor, floor, owner, what its chain says, open holds, last nonces."`
	List    signerListCmd    `cmd:"" help:"List signers with what stands out about them, such as gaps and holds of unknown outcome."`
	Floor   signerFloorCmd   `cmd:"" help:"Raise the floor of a signer."`
	Release signerReleaseCmd `cmd:"" help:"Give a nonce back that was not used."`
	Consume signerConsumeCmd `cmd:"" help:"Say that a nonce was used."`
}

type signerShowCmd struct {
	Signer string `arg:"" help:"The signer, as in nonce_allocate."`
	Limit  int64  `default:"20" min:"1" max:"1000" help:"Most holds, and most of the last nonces, to show."`
	lookCmd
}

// signerView is what the command prints. Its parts were read one after the other,
// so what happens meanwhile may be in one and not in another.
type signerView struct {
	Known  bool              `json:"known"` // something of it was handed out, or it has a floor
	Status wire.StatusResult `json:"status"`
	Holds  []wire.Allocation `json:"holds"` // from the lowest that still runs
	Last   []wire.Allocation `json:"last"`  // the highest nonces, the highest first
}

// Run implements the command.
func (c *signerShowCmd) Run(ctx context.Context, p *program) error {
	known := false
	err := look(ctx, &c.lookCmd, p.stdout, func(ctx context.Context, gateway *client.Client) (signerView, error) {
		v, err := c.ask(ctx, gateway)
		known = v.Known
		return v, err
	}, printSigner)
	if err == nil && !known {
		return fmt.Errorf("the signer %s is not known: nothing of it was ever handed out; gateway signer list shows those that are known",
			c.Signer)
	}
	return err
}

// ask reads the figures of the signer, and then of its allocations only what they
// say there is.
func (c *signerShowCmd) ask(ctx context.Context, gateway *client.Client) (v signerView, err error) {
	v.Holds, v.Last = []wire.Allocation{}, []wire.Allocation{}
	if v.Status, err = gateway.Status(ctx, c.Signer); err != nil {
		return v, err
	}
	v.Known = v.Status.Version != 0 || v.Status.Next != 0
	if lowest := v.Status.LowestHeld; lowest != nil {
		page, err := gateway.List(ctx, wire.ListParams{Signer: c.Signer, Status: wire.StatusHeld, From: *lowest, Limit: c.Limit})
		if err != nil {
			return v, err
		}
		v.Holds = page.Allocations
	}
	if v.Status.Next == 0 {
		return v, nil
	}
	page, err := gateway.List(ctx, wire.ListParams{Signer: c.Signer, From: max(v.Status.Next-c.Limit, 0), Limit: c.Limit})
	if err != nil {
		return v, err
	}
	v.Last = page.Allocations
	slices.Reverse(v.Last)
	return v, nil
}

func printSigner(w io.Writer, v signerView) error {
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

func printHolds(w io.Writer, v signerView) error {
	if len(v.Holds) == 0 {
		_, err := fmt.Fprintln(w, "\nno open holds")
		return err
	}
	fmt.Fprintln(w, "\nopen holds")
	t := columns(w)
	fmt.Fprintln(t, "NONCE\tSTATUS\tATTEMPT\tUNTIL\tHOLDER\tREQUEST\tHASH OR REASON")
	for _, a := range v.Holds {
		t.row(a.Nonce, a.Status, a.Attempt, a.HeldUntil, a.Holder, a.RequestID, cmp.Or(a.TxHash, a.Reason))
	}
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
	t := columns(w)
	fmt.Fprintln(t, "NONCE\tSTATUS\tCHAIN\tATTEMPT\tCHANGED\tHOLDER\tREQUEST\tHASH OR REASON")
	for _, a := range last {
		what := cmp.Or(a.TxHash, a.Reason)
		if more := len(a.TxHashes) - 1; more > 0 {
			what += fmt.Sprintf(" and %d before", more)
		}
		t.row(a.Nonce, a.Status, a.Chain, a.Attempt, a.UpdatedAt, a.Holder, a.RequestID, what)
	}
	return t.Flush()
}
