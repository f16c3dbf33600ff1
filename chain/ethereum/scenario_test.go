package ethereum

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
)

// TestScenarios plays testdata/*.txt; testdata/README.md has the format.
func TestScenarios(t *testing.T) {
	expect.Scripts(t, "testdata/*.txt", func(t *testing.T, script *expect.Script) {
		nodes := script.Option("nodes")
		if nodes == nil {
			t.Fatal(`a scenario begins with "nodes"`)
		}
		s := &scene{blocks: make(map[string]*fakenode.Block), names: make(map[chain.Hash]string), rules: make(map[string][]rule),
			listeners: make(map[string]listener), said: map[string]string{"gone": "usual"}}
		change, stopped := s.settings(t, nodes[1:])
		start := withNodes(int(s.number(nodes[0])), change).run
		if stopped {
			start = withNodes(int(s.number(nodes[0])), change).prepare
		}
		start(t, func(t *testing.T, w *world) {
			s.world = w
			script.Play(s.step)
		})
	})
}

// scene is a world whose blocks have names.
type scene struct {
	*world
	mu        sync.Mutex // guards blocks and names: nodes look for what they are to tell
	blocks    map[string]*fakenode.Block
	names     map[chain.Hash]string
	listeners map[string]listener
	rules     map[string][]rule // by node and method, the newest last
	said      map[string]string // words for what nodes say to transactions
	mined     int
	sent      int64
}

// rule is what a node answers to questions whose params have a text.
type rule struct {
	about  string
	answer fakenode.Handler
}

func (s *scene) settings(t *testing.T, words []string) (change func(*Config), stopped bool) {
	var changes []func(*Config)
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "stopped":
			stopped = true
		case "ws":
			changes = append(changes, func(c *Config) {
				for i, u := range c.Nodes {
					if value == "" || strings.Contains(value, u[len("http://"):len("http://a")]) {
						c.Nodes[i] = strings.Replace(u, "http:", "ws:", 1)
					}
				}
			})
		case "answer":
			changes = append(changes, func(c *Config) { c.MaxAnswerBytes = s.number(value) })
		case "behind":
			changes = append(changes, func(c *Config) { c.MaxBlocksBehind = int(s.number(value)) })
		case "finality":
			changes = append(changes, func(c *Config) { c.Finality = value })
		default:
			t.Fatalf("there is no setting %q", word)
		}
	}
	return func(c *Config) {
		for _, change := range changes {
			change(c)
		}
	}, stopped
}

func (s *scene) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err) // which names the text
	}
	return n
}

// step does what one line says, and returns what is shown below it.
func (s *scene) step(command string, args []string) []string {
	s.t.Helper()
	switch command {
	case "grow":
		s.grow(args[0], s.block(args[1]), args[2:])
	case "at":
		s.each(args[0], func(n *fakenode.Node) { n.SetHead(s.block(args[1])) })
	case "reach":
		s.reach(s.block(args[0]))
	case "mine":
		s.mined++
		s.name(fmt.Sprint("m", s.mined), s.mine(s.txs(args, 0)...), 1)
	case "final":
		b := s.block(args[1])
		s.each(args[0], func(n *fakenode.Node) { n.SetFinal(b) })
	case "start":
		s.start()
	case "run":
		s.run()
	case "wait":
		d, err := time.ParseDuration(args[0])
		must(s.t, err)
		time.Sleep(d)
		synctest.Wait()
	case "settle":
		s.settle()
	case "says":
		s.says(args[0], args[1], s.answer(args[2:]))
	case "word":
		s.said[args[0]] = strings.Join(args[1:], " ")
	case "http":
		s.http(args[0], args[1:])
	case "chain":
		s.each(args[0], func(n *fakenode.Node) { n.SetChainID(s.number(args[1])) })
	case "pool":
		s.each(args[0], func(n *fakenode.Node) { n.SetPool(s.txs(args[1:], 0)...) })
	case "code":
		s.each(args[0], func(n *fakenode.Node) { n.SetCode(fakenode.Account(int(s.number(args[1]))), args[2]) })
	case "mute":
		s.each(args[0], func(n *fakenode.Node) { n.Mute(true) })
	case "emit":
		s.each(args[0], func(n *fakenode.Node) { n.Emit(args[1], json.RawMessage(args[2])) })
		synctest.Wait()
	case "leave":
		s.listeners[args[0]].leave()
		synctest.Wait()
	case "break":
		s.each(args[0], (*fakenode.Node).CloseSockets)
		synctest.Wait()
	default:
		return s.show(command, args)
	}
	return nil
}

// show is what a line asks for.
func (s *scene) show(command string, args []string) (shown []string) {
	s.t.Helper()
	ctx := s.t.Context()
	switch command {
	case "heads":
		for len(s.heads) > 0 {
			shown = append(shown, s.headText(<-s.heads))
		}
	case "last":
		shown = append(shown, s.headText(s.last()))
	case "agreed":
		shown = append(shown, s.nameOf(*s.agreed.Load()))
	case "counts":
		counts, err := s.Counts(ctx, blockOf(s.block(args[0])), accountsOf(args[1:]))
		for i, c := range counts {
			text := fmt.Sprintf("%s: %d by %d%s%s", args[i+1], c.Used, c.Nodes, with(" hint", c.Hint), flagged(" loose", c.Loose))
			shown = append(shown, strings.TrimSpace(text))
		}
		return append(shown, errorText(err)...)
	case "sight":
		starts, err := s.Start(ctx, accountsOf(args))
		for i, st := range starts {
			shown = append(shown, fmt.Sprintf("%s: latest %d pending %d%s", args[i], st.Latest, st.Pending, flagged(" delegated", st.Delegated)))
			if st.Doubt != nil {
				shown = append(shown, "doubt: "+st.Doubt.Error())
			}
		}
		return append(shown, errorText(err)...)
	case "lookup":
		return s.lookup(args)
	case "call":
		result, refusal, err := s.Call(ctx, args[0], json.RawMessage(strings.Join(args[1:], " ")))
		if refusal != nil {
			result = json.RawMessage(fmt.Sprint("refused ", refusal.Code, " ", refusal.Message))
		}
		if err != nil {
			return errorText(err)
		}
		return []string{string(result)}
	case "send":
		return []string{s.send(ctx, s.number(args[0]))}
	case "verdict":
		return s.verdict(ctx, args)
	case "subscribe":
		return s.subscribe(args[0], strings.Join(args[1:], " "))
	case "events":
		l := s.listeners[args[0]]
		for len(l.events) > 0 {
			shown = append(shown, <-l.events)
		}
	case "subscribed":
		open := 0
		s.each(args[0], func(n *fakenode.Node) { open += n.Subscribed(args[1]) })
		shown = append(shown, fmt.Sprintf("%d at nodes, %d taken", open, len(s.subs)))
	case "status":
		s.each(args[0], func(n *fakenode.Node) { shown = append(shown, s.statusText(n)) })
	case "failure": // of a node, the last one
		shown = append(shown, s.nodeStatus(int(args[0][0]-'a')).LastError)
	case "figures":
		for _, series := range args {
			shown = append(shown, fmt.Sprint(series, " ", s.figure(series)))
		}
	case "logged":
		shown = append(shown, fmt.Sprint(s.logged(strings.Join(args, " "))))
	case "calls":
		calls := 0
		s.each(args[0], func(n *fakenode.Node) { calls += n.Calls(args[1]) })
		shown = append(shown, fmt.Sprint(calls))
	default:
		s.t.Fatalf("there is no command %q", command)
	}
	return shown
}

// each does something with the nodes of these letters.
func (s *scene) each(letters string, do func(*fakenode.Node)) {
	for _, letter := range letters {
		do(s.nodes[letter-'a'])
	}
}

// block finds NAME or NAME-N, the block so many below it. A letter is the head of that node.
func (s *scene) block(text string) *fakenode.Block {
	name, depth, under := strings.Cut(text, "-")
	s.mu.Lock()
	b := s.blocks[name]
	s.mu.Unlock()
	switch {
	case text == "none":
		return nil
	case name == "first":
		b = s.chain.First()
	case b == nil && len(name) == 1:
		b = s.nodes[name[0]-'a'].Head()
	}
	if b == nil {
		s.t.Fatalf("there is no block %q", text)
	}
	if under {
		b = below(b, int(s.number(depth)))
	}
	return b
}

// grow puts blocks on another one: xN of them, with transactions as txs has them.
func (s *scene) grow(name string, b *fakenode.Block, args []string) {
	count := int64(1)
	if len(args) > 0 && args[0][0] == 'x' {
		count, args = s.number(args[0][1:]), args[1:]
	}
	for i := range count {
		var in []string
		for _, arg := range args {
			if i == count-1 || strings.Contains(arg, "*") {
				in = append(in, arg)
			}
		}
		b = s.chain.Extend(b, s.txs(in, i)...)
	}
	s.name(name, b, int(count))
}

func (s *scene) name(name string, b *fakenode.Block, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.names, func(_ chain.Hash, was string) bool { return was == name || strings.HasPrefix(was, name+"-") })
	s.blocks[name] = b
	for i := range count {
		s.names[chain.Hash(b.Hash)] = strings.TrimSuffix(fmt.Sprint(name, "-", i), "-0")
		b = b.Parent
	}
}

func (s *scene) nameOf(b chain.Block) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.names[b.Hash]; name != "" {
		return name
	}
	return fmt.Sprint(b.Number)
}

// txs reads ACCOUNT:NONCE[:TYPE]; the nonce * is i, for the i-th of several blocks.
func (s *scene) txs(args []string, i int64) (txs []fakenode.Tx) {
	for _, arg := range args {
		parts := strings.Split(strings.NewReplacer("*", fmt.Sprint(i), ":known", "", ":said", "").Replace(arg), ":")
		tx := transfer(int(s.number(parts[0])), s.number(parts[1]))
		if len(parts) > 2 {
			tx.Type = int(s.number(parts[2]))
		}
		txs = append(txs, tx)
	}
	return txs
}

func accountsOf(args []string) (accounts []string) {
	for _, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil {
			panic(err)
		}
		accounts = append(accounts, fakenode.Account(n))
	}
	return accounts
}

// says has nodes answer METHOD, or METHOD?TEXT where the params have the text, so from now on.
func (s *scene) says(letters, what string, answer fakenode.Handler) {
	method, about, _ := strings.Cut(what, "?")
	s.each(letters, func(n *fakenode.Node) {
		key := fmt.Sprintf("%p %s", n, method)
		s.rules[key] = append(s.rules[key], rule{about, answer})
		all := s.rules[key]
		n.On(method, func(params []json.RawMessage) (any, error) {
			for i := len(all) - 1; i >= 0; i-- {
				if strings.Contains(fmt.Sprintf("%s", params), all[i].about) {
					return all[i].answer(params)
				}
			}
			return nil, fakenode.ErrUsual
		})
	})
}

// answer reads what a node answers: JSON, a refusal, or nothing.
func (s *scene) answer(words []string) fakenode.Handler {
	text := strings.Join(words, " ")
	switch words[0] {
	case "usual":
		return func([]json.RawMessage) (any, error) { return nil, fakenode.ErrUsual }
	case "error":
		refusal := &fakenode.Error{Code: int(s.number(words[1])), Message: strings.Join(words[2:], " ")}
		return func([]json.RawMessage) (any, error) { return nil, refusal }
	case "hash":
		return says("")
	case "block":
		return s.blockAnswer(words[1], words[2:])
	case "large":
		return func([]json.RawMessage) (any, error) { return strings.Repeat("x", 2<<20), nil }
	case "pooled", "found":
		n := s.nodes[words[1][0]-'a']
		return map[string]fakenode.Handler{"pooled": n.ContentFrom, "found": n.FindBySender}[words[0]]
	}
	return func([]json.RawMessage) (any, error) { return json.RawMessage(text), nil }
}

// blockAnswer is a block with its transactions, with members changed: NAME=JSON, number=+N, or next, which
// makes it a child of itself that nobody has.
func (s *scene) blockAnswer(of string, changes []string) fakenode.Handler {
	return func([]json.RawMessage) (any, error) {
		own := s.block(of)
		b := own.JSON(!slices.Contains(changes, "bare"))
		for _, change := range changes {
			name, value, _ := strings.Cut(change, "=")
			number, ahead := strings.CutPrefix(value, "+")
			switch {
			case name == "bare": // hashes instead of transactions
			case name == "next":
				b["number"], b["parentHash"], b["hash"] = fakenode.Quantity(own.Number+1), own.Hash.String(), fakenode.TxHash(int(own.Number)).String()
			case ahead:
				b["number"], b["hash"] = fakenode.Quantity(own.Number+s.number(number)), fakenode.TxHash(int(own.Number)).String()
			default:
				b[name] = json.RawMessage(value)
			}
		}
		return b, nil
	}
}

// http has nodes answer requests, or those that have a text, with a status, not at all, or as usual.
func (s *scene) http(letters string, words []string) {
	about := ""
	if len(words) > 2 && words[len(words)-2] == "for" {
		about = words[len(words)-1]
	}
	s.each(letters, func(n *fakenode.Node) {
		if words[0] == "usual" {
			n.OnHTTP(nil)
			return
		}
		n.OnHTTP(func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			switch {
			case !strings.Contains(string(body), about):
				return false
			case words[0] == "cut":
				panic(http.ErrAbortHandler)
			case words[0] == "silent":
				<-r.Context().Done()
				return true
			}
			if len(words) > 1 && words[1] == "later" {
				w.Header().Set("Retry-After", "600")
			}
			http.Error(w, "gone", int(s.number(words[0])))
			return true
		})
	})
}

// listener is a consumer of a subscription, and what it was told: events and the end.
type listener struct {
	events chan string
	leave  func()
}

func (s *scene) subscribe(name, params string) []string {
	l := listener{events: make(chan string, 1000)}
	began := time.Now()
	leave, refusal, err := s.Subscribe(s.t.Context(), json.RawMessage(params), func(e json.RawMessage) {
		text := string(e)
		if number := regexp.MustCompile(`"number":"0x[0-9a-f]+"`).FindString(text); number != "" {
			text = "head " + number
		}
		l.events <- text
	}, func(err error) {
		l.events <- fmt.Sprint("ended after ", time.Since(began).Truncate(time.Minute), ": ", errorText(err)[0])
	})
	l.leave = leave
	s.listeners[name] = l
	synctest.Wait()
	if refusal != nil {
		return []string{fmt.Sprint("refused ", refusal.Code, " ", refusal.Message)}
	}
	return errorText(err)
}

func (s *scene) lookup(args []string) (shown []string) {
	var asks []chain.Ask
	for _, tx := range s.txs(args, 0) {
		ask := chain.Ask{Account: tx.From, Nonce: tx.Nonce}
		if strings.HasSuffix(args[len(asks)], ":known") { // which is its hash
			ask.Hashes = []chain.Hash{chain.Hash(tx.Hash)}
		}
		if strings.HasSuffix(args[len(asks)], ":said") {
			ask.Claims = []chain.Hash{chain.Hash(tx.Hash)}
		}
		asks = append(asks, ask)
	}
	found, err := s.Lookup(s.t.Context(), asks)
	for i, f := range found {
		words := [...]string{"absent", "pooled", "mined"}
		text := args[i] + ": " + words[f.Seen]
		if f.Seen != chain.Absent {
			text += " as " + s.txText(asks[i].Account, asks[i].Nonce, f.Tx)
		}
		if f.Settled != chain.Absent {
			text += ", settled: " + words[f.Settled]
		}
		shown = append(shown, fmt.Sprintf("%s, %d asked%s", text, f.Nodes, flagged(", failed", f.Failed)))
	}
	return append(shown, errorText(err)...)
}

// verdict shows what becomes of a new transaction to which two nodes say this, in whatever order.
func (s *scene) verdict(ctx context.Context, says []string) []string {
	var all []string
	for _, order := range [][]string{says, {says[1], says[0]}} {
		for i, word := range order {
			letter := string(rune('a' + i))
			s.http(letter, []string{"usual"})
			if word == "gone" {
				s.http(letter, []string{"cut", "for", methodSend})
			}
			s.says(letter, methodSend, s.answer(strings.Fields(s.said[word])))
		}
		s.sent++
		all = append(all, s.send(ctx, s.sent))
	}
	return slices.Compact(all)
}

func (s *scene) send(ctx context.Context, nonce int64) string {
	v := s.Send(ctx, rawLegacy(1, uint64(nonce)))
	synctest.Wait()
	shown := v.Class.String() + flagged(" missing", v.Missing) + flagged(" later", v.Later) +
		flagged(" unanswered", v.Unanswered) + flagged(" before", v.Before) + flagged(" disputed", v.Disputed)
	if v.Code != 0 {
		shown += strings.TrimSuffix(fmt.Sprint(": ", v.Code, " ", v.Message, " ", string(v.Data)), " ")
	}
	return shown
}

func (s *scene) headText(h chain.Head) string {
	shown := s.nameOf(h.Latest)
	if h.Final != (chain.Block{}) {
		shown += " final " + s.nameOf(h.Final)
	}
	shown += flagged(" skipped", h.Skipped) + flagged(" fell", h.FinalFell) + flagged(" stands", h.FinalStands)
	if r := h.Reorg; r != nil {
		shown += fmt.Sprintf(" reorg %d from %s to %s", r.Depth, s.nameOf(r.From), s.nameOf(r.To))
	}
	for i, u := range h.Uses {
		if i == 0 {
			shown += " uses"
		}
		shown += " " + s.txText(u.Account, u.Nonce, u.Tx) + flagged(":unread", u.Unread) + flagged(":auth", u.Authorization)
	}
	return shown
}

// txText is ACCOUNT:NONCE, with a ? if the transaction is not the one that txs makes.
func (s *scene) txText(account string, nonce int64, tx chain.Hash) string {
	n, err := strconv.ParseInt(strings.TrimLeft(account, "0x"), 16, 64)
	if err != nil {
		return fmt.Sprint("?:", nonce)
	}
	return fmt.Sprintf("%d:%d%s", n, nonce, flagged("?", tx != chain.Hash(transfer(int(n), nonce).Hash)))
}

func (s *scene) statusText(n *fakenode.Node) string {
	for i, node := range s.nodes {
		if st := s.nodeStatus(i); node == n {
			shown := map[bool]string{true: "up", false: "down"}[st.Up] + with(" lag", st.Lag) + flagged(" off-branch", !st.OnBranch)
			shown += flagged(" wrong", st.Wrong) + flagged(" subscribed", st.Subscribed) + flagged(" backing-off", !st.BackingOffUntil.IsZero())
			if st.OtherChain != "" {
				shown += " of " + st.OtherChain
			}
			return st.Name + " " + shown + flagged(" ("+st.LastError+")", st.LastError != "" && !st.Up)
		}
	}
	return ""
}

// errorText is what an error means.
func errorText(err error) []string {
	for text, kind := range map[string]error{
		"unreachable": chain.ErrUnreachable, "busy": ErrBusy, "too large": ErrTooLarge, "timed out": context.DeadlineExceeded,
		"lost": ErrSubscriptionLost,
	} {
		if errors.Is(err, kind) {
			return []string{text}
		}
	}
	if err != nil {
		return []string{err.Error()}
	}
	return nil
}

func with(word string, n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(word, " ", n)
}

func flagged(word string, is bool) string {
	if is {
		return word
	}
	return ""
}
