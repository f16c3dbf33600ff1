package chain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
	"noncegate/test/lab/expect"
)

// TestScenarios plays testdata/*.txt; testdata/README.md has the format.
func TestScenarios(t *testing.T) {
	expect.Scripts(t, "testdata/*.txt", func(t *testing.T, s *expect.Script) {
		var cfg Config
		for _, setting := range s.Option("windows") {
			pattern, window, _ := strings.Cut(setting, "=")
			cfg.Windows = append(cfg.Windows, WindowOf{Pattern: pattern, Window: number(t, window)})
		}
		inWorld(t, cfg, func(w *world) { s.Play(w.step) })
	})
}

func repairOf(signer string) *nonce.Request {
	return &nonce.Request{Kind: nonce.KindRepair, Signer: signer}
}

var names = map[string]string{"alice": alice, "bob": bob, "eve": "eip155:9:0xee"} // of another chain

// step does what one line says, and returns what is shown below it.
func (w *world) step(command string, args []string) []string {
	w.t.Helper()
	switch command {
	case "after":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.after(d)
	case "own":
		w.signer(names[args[0]], number(w.t, args[1]))
	case "disown":
		w.chains.Signer(names[args[0]]).Owned(false)
	case "chain":
		w.chain.set(func() { w.setChain(args) })
	case "ops":
		w.svc.mu.Lock()
		defer w.svc.mu.Unlock()
		w.svc.err = map[string]error{"refused": nonce.ErrBusy}[args[0]]
	case "owner":
		w.svc.mu.Lock()
		defer w.svc.mu.Unlock()
		w.svc.owner, w.svc.ownerAway = strings.TrimPrefix(args[0], "here"), len(args) > 1
	case "lists":
		w.svc.refuseLists(args[0] == "refused")
	case "listed":
		w.list(args)
	case "rows":
		w.rows(w.parseRows(args))
	case "commit":
		w.chains.Signer(names[args[0]]).Committed(w.parseEvents(args[1:]))
	case "block":
		w.block(w.parseUses(args)...)
	case "head":
		w.number++
		w.head(w.parseHead(args, Head{}))
	case "reorg":
		now := Block{Number: w.number, Hash: hash(9), Time: time.Unix(12*w.number, 0)}
		depth := int(number(w.t, args[0]))
		w.head(w.parseHead(args[1:], Head{Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: depth}}))
	default:
		return w.show(command, args)
	}
	return nil
}

// show is what a line asks for.
func (w *world) show(command string, args []string) (shown []string) {
	w.t.Helper()
	switch command {
	case "view":
		v := w.chains.Signer(names[args[0]]).View(number(w.t, args[1]))
		if !v.Known {
			return []string{strings.TrimSuffix("not known: "+v.Said, ": ")}
		}
		shown := fmt.Sprintf("mined %d final %d start %d window %d", v.Mined, v.Final, v.Start, v.Window)
		if v.Claimed != 0 {
			shown += fmt.Sprint(" claimed ", v.Claimed)
		}
		return []string{shown + flagged(" old", v.StartOld)}
	case "ready": // waits in the background
		d, err := time.ParseDuration(args[1])
		if err != nil {
			w.t.Fatal(err)
		}
		began := time.Now()
		if w.chains.Ready(names[args[0]], d, func() { w.waited <- time.Since(began) }) {
			return []string{"at once"}
		}
		w.after(0)
	case "anew": // waits for it, as a repair does
		done := make(chan struct{})
		if w.chains.Await(repairOf(names[args[0]]), func() { close(done) }) {
			<-done
		}
		s := w.chains.Signer(names[args[0]])
		v := s.View(number(w.t, args[1]))
		return []string{fmt.Sprintf("mined %d ahead %d%s", v.Mined, v.Ahead, flagged(" old", s.RepairOld()))}
	case "offer":
		r := nonce.Result{Nonces: []int64{number(w.t, args[1])}}
		if w.chains.Tell(repairOf(names[args[0]]), &r); r.Offer == nil {
			return []string{"gas price"}
		}
		return []string{"gas price " + r.Offer.GasPrice}
	case "waited":
		for len(w.waited) > 0 {
			shown = append(shown, (<-w.waited).String())
		}
	case "unseen":
		return []string{fmt.Sprint(w.chains.Signer(names[args[0]]).Unseen(number(w.t, args[1]), number(w.t, args[2])))}
	case "ask":
		return []string{w.ask(names[args[0]], number(w.t, args[1]), strings.Join(args[2:], " "))}
	case "lookat":
		w.chains.LookAt(names[args[0]], number(w.t, args[1]))
		return w.show("state", args)
	case "adopt":
		w.list(args)
		s := w.chains.known(names[args[0]])
		s.t.report(s, s.adopt(&w.svc.listed[0]))
		w.svc.listed = nil // the node's own reading of the list comes too late
		return w.show("state", args)
	case "tell", "tell-node":
		return w.tell(names[args[0]], number(w.t, args[1]), command == "tell-node")
	case "since":
		st, _ := w.chains.State(names[args[0]])
		return []string{time.Since(st.Trouble.Since).Round(time.Second).String() + flagged(" by its own look", w.chains.found(names[args[0]]))}
	case "state":
		st, _ := w.chains.State(names[args[0]])
		if st.Stopped {
			shown = append(shown, "stopped")
		}
		if g := st.Trouble; g != nil {
			shown = append(shown, fmt.Sprintf("%s %d/%d %s%s blocks %d", g.Kind, g.Nonce, g.Attempt, g.Status, flagged(" unknown", g.Unknown),
				g.Blocked))
		}
	case "words":
		rows := w.parseRows(args)
		for i, word := range w.chains.Words(alice, rows) {
			shown = append(shown, strings.TrimSpace(fmt.Sprintf("%d/%d%s %s", rows[i].Nonce, rows[i].Attempt, tx(rows[i].TxHash), word)))
		}
	case "tended":
		w.svc.mu.Lock()
		defer w.svc.mu.Unlock()
		shown, w.svc.tended = w.svc.tended, nil
		for _, e := range w.svc.listed {
			shown = append(shown, strings.TrimSpace(fmt.Sprint("listed ", e.Signer, " ", e.Kind.String())))
		}
	case "did":
		for _, op := range w.did() {
			words := flagged(" any", op.MarkAny) + flagged(" "+op.Reason, op.Reason != "")
			shown = append(shown, fmt.Sprintf("%v %d/%d%s%s", op.Kind, op.Nonce, op.Attempt, tx(op.TxHash), words))
		}
	case "asked":
		w.chain.set(func() {
			for _, a := range w.chain.asked {
				shown = append(shown, fmt.Sprint(a.Nonce))
			}
			w.chain.asked = nil
		})
	case "told":
		for _, e := range w.told() {
			if gap := e.Gap; gap != nil {
				e.Reason = fmt.Sprintf("%s%s blocks %d", gap.Status, flagged(" unknown", gap.Unknown), gap.Blocked)
			}
			shown = append(shown, strings.TrimSpace(fmt.Sprintf("%v %d/%d%s %s", e.Type, e.Nonce, e.Attempt, tx(e.TxHash), e.Reason)))
		}
	default:
		w.t.Fatalf("there is no command %q", command)
	}
	return shown
}

// tell is what a client, or another node, is told with a status and with a list.
func (w *world) tell(signer string, next int64, node bool) (shown []string) {
	status := nonce.Result{Summary: nonce.Summary{Next: next}}
	w.chains.Tell(&nonce.Request{Kind: nonce.KindStatus, Signer: signer, ChainOnly: node}, &status)
	if status.Err != nil {
		return []string{status.Err.Error()}
	}
	list := nonce.Result{Page: nonce.ListPage{Rows: w.svc.stored()}}
	w.chains.Tell(&nonce.Request{Kind: nonce.KindList, Signer: signer, ChainOnly: node}, &list)
	line := "nothing"
	if st := status.Said.State; st != nil {
		line = fmt.Sprint("mined ", st.Mined)
		if g := st.Trouble; g != nil {
			line += fmt.Sprintf(", %s %d blocks %d", g.Kind, g.Nonce, g.Blocked)
		}
	}
	shown = append(shown, line+flagged(" partial", status.Said.Partial))
	for _, word := range list.Said.Words {
		shown = append(shown, fmt.Sprintf("%d/%d %s%s", word.Nonce, word.Attempt, word.Word, flagged(" partial", list.Said.Partial)))
	}
	return shown
}

// ask plans one op of a signer by the rules, and does what a commit of the plan does: the store has its
// rows, and the tracker is told. next is the cursor of a signer that has no row yet.
func (w *world) ask(signer string, next int64, line string) string {
	w.t.Helper()
	if w.planned == nil {
		w.planned = make(map[string]nonce.Signer)
	}
	row, there := w.planned[signer]
	if !there {
		row = nonce.Signer{Version: 1, Next: next}
	}
	op := noncetest.Parse(w.t, line)
	op.Signer = signer
	if op.Kind == nonce.KindRepair {
		w.chains.Await(repairOf(signer), func() {})
		w.after(0)
	}
	now := time.Now().UnixMilli()
	in := rules.Input{Signer: row, Token: 1, Now: nonce.Clock{Earliest: now, Latest: now}, Chain: w.chains.Signer(signer),
		History: make(map[int64]*nonce.Past)}
	for n := range row.Next {
		in.History[n] = nil // nothing is kept of what was consumed
	}
	plan := (&rules.Rules{DefaultHold: time.Hour, MaxLive: noncetest.MaxHolds}).Make(&in, []*nonce.Request{&op.Request})
	if len(plan.Answers) == 0 {
		w.t.Fatalf("%s: not answered, wants %+v", line, plan.Wants)
	}
	w.planned[signer] = plan.Signer
	rows := make([]nonce.Row, len(plan.Signer.Live))
	for i := range rows {
		rows[i] = plan.Signer.Live[i].Row()
	}
	w.rows(rows)
	a, events := &plan.Answers[0], plan.Own
	shown := fmt.Sprint("next ", plan.Signer.Next)
	for i, n := range a.Nonces {
		events = append(events, nonce.Event{Type: nonce.EventAllocated, Nonce: n, Attempt: a.Attempts[i]})
		shown += fmt.Sprint(" nonce ", n)
	}
	if a.Err != nil {
		return shown + ": " + a.Err.Error()
	}
	w.chains.Signer(signer).Committed(events)
	w.chains.Signer(signer).View(plan.Signer.Next)
	return shown
}

func tx(h Hash) string {
	if h == (Hash{}) {
		return ""
	}
	return fmt.Sprintf(" tx%d", h[31])
}

func flagged(word string, is bool) string {
	if is {
		return word
	}
	return ""
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// list has the store list a signer as watched, SIGNER NEXT and perhaps KIND:NONCE.
func (w *world) list(args []string) {
	w.t.Helper()
	e := nonce.WatchEntry{ID: 1, Signer: names[args[0]], Watch: nonce.Watch{Kind: nonce.WatchOn}}
	for kind := nonce.WatchGap; len(args) > 2 && kind <= nonce.WatchStuck; kind++ {
		if kind.String() == part(args[2], 0) {
			e.Watch = nonce.Watch{Kind: kind, Nonce: number(w.t, part(args[2], 1)), Since: time.Now().UnixMilli()}
		}
	}
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	w.svc.listed, w.svc.next = []nonce.WatchEntry{e}, number(w.t, args[1])
}

// setChain takes what nodes say from now on: of an account, or of themselves.
func (w *world) setChain(args []string) {
	w.t.Helper()
	c, who := w.chain, account(alice)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "of":
			who = account(names[value])
		case "mined":
			c.mined[who] = number(w.t, value)
		case "pending":
			c.pending[who] = number(w.t, value)
		case "final":
			c.final[who] = number(w.t, value)
		case "delegated":
			c.code[who] = true
		case "quarrel":
			c.quarrel = value == "yes"
		case "alone":
			c.alone = value == "yes"
		case "nodes":
			c.nodes = int(number(w.t, value))
		case "doubt":
			c.doubt = value == "yes"
		case "away":
			c.away = value == "yes"
		case "failed":
			c.failed = value == "yes"
		case "pool":
			n := number(w.t, part(value, 0))
			delete(c.pool, n)
			if part(value, 1) != "" {
				c.pool[n] = w.parseSighting(value)
			}
			c.byHash[n] = strings.HasSuffix(value, ":byhash")
		default:
			w.t.Fatalf("a chain has no %q", name)
		}
	}
}

// parseSighting reads NONCE:TX:WORDS. With the word mined a block has it, with one a single node shows
// it, with byhash nodes show it to who names it, with pays its gas price is 5.
func (w *world) parseSighting(text string) Sighting {
	w.t.Helper()
	tx, words := w.parseTx(part(text, 1)), strings.Split(text, ":")[2:]
	f := Sighting{Seen: Pooled, Tx: tx}
	if slices.Contains(words, "mined") {
		f.Seen = Mined
	}
	if slices.Contains(words, "pays") {
		f.Raw.GasPrice = "0x5"
	}
	if !slices.Contains(words, "one") {
		f.Settled, f.SettledTx = f.Seen, tx
	}
	return f
}

// parseTx reads the name of a transaction, tx1 to tx255; "": none.
func (w *world) parseTx(text string) Hash {
	w.t.Helper()
	if text == "" {
		return Hash{}
	}
	return hash(byte(number(w.t, strings.TrimPrefix(text, "tx"))))
}

// parseHold reads NONCE/ATTEMPT.
func (w *world) parseHold(text string) (n, attempt int64) {
	w.t.Helper()
	first, second, _ := strings.Cut(text, "/")
	return number(w.t, first), number(w.t, second)
}

// part is the i-th of the parts of a word, "" beyond the last.
func part(word string, i int) string {
	if parts := strings.Split(word, ":"); i < len(parts) {
		return parts[i]
	}
	return ""
}

// parseUses reads SIGNER:NONCE:TX, with :auth if it is an authorization's.
func (w *world) parseUses(args []string) (uses []Use) {
	w.t.Helper()
	for _, arg := range args {
		uses = append(uses, Use{
			Account: account(names[part(arg, 0)]), Nonce: number(w.t, part(arg, 1)), Tx: w.parseTx(part(arg, 2)),
			Authorization: part(arg, 3) == "auth",
		})
	}
	return uses
}

// parseHead reads skipped, fell, final=NUMBER, agreed=NUMBER and uses.
func (w *world) parseHead(args []string, h Head) Head {
	w.t.Helper()
	h.Latest = Block{Number: w.number, Time: time.Unix(12*w.number, 0)}
	if h.Reorg != nil {
		h.Latest = h.Reorg.To
	}
	for _, arg := range args {
		switch {
		case arg == "skipped":
			h.Skipped = true
		case arg == "stands":
			h.FinalStands = true
		case arg == "fell":
			h.FinalFell = true
		case strings.HasPrefix(arg, "agreed="):
			h.Agreed = Block{Number: number(w.t, strings.TrimPrefix(arg, "agreed="))}
		case strings.HasPrefix(arg, "final="):
			h.Final = Block{Number: number(w.t, strings.TrimPrefix(arg, "final=")), Hash: Hash{'f'}}
		default:
			h.Uses = append(h.Uses, w.parseUses([]string{arg})...)
		}
	}
	return h
}

// parseEvents reads TYPE:NONCE/ATTEMPT:TX:REASON.
func (w *world) parseEvents(args []string) (events []nonce.Event) {
	w.t.Helper()
	for _, arg := range args {
		e := nonce.Event{TxHash: w.parseTx(part(arg, 2)), Reason: part(arg, 3)}
		e.Nonce, e.Attempt = w.parseHold(part(arg, 1))
		for typ := nonce.EventAllocated; typ <= nonce.EventStuck; typ++ {
			if typ.String() == part(arg, 0) {
				e.Type = typ
			}
		}
		if e.Type == 0 {
			w.t.Fatalf("there is no event %q", arg)
		}
		events = append(events, e)
	}
	return events
}

// parseRows reads STATUS:NONCE/ATTEMPT:TX:REPLACED:REASON; the status unknown is that of a hold.
func (w *world) parseRows(args []string) (rows []nonce.Row) {
	w.t.Helper()
	for _, arg := range args {
		row := nonce.Row{TxHash: w.parseTx(part(arg, 2)), Reason: part(arg, 4)}
		row.Nonce, row.Attempt = w.parseHold(part(arg, 1))
		if before := w.parseTx(part(arg, 3)); before != (Hash{}) {
			row.Replaced = nonce.TxHashes(before[:])
		}
		switch part(arg, 0) {
		case "held":
			row.Status = nonce.Held
		case "unknown":
			row.Status, row.Reason = nonce.Held, nonce.ReasonUnknown
		case "released":
			row.Status = nonce.Released
		case "consumed":
			row.Status = nonce.Consumed
		default:
			w.t.Fatalf("there is no status %q", arg)
		}
		rows = append(rows, row)
	}
	return rows
}
