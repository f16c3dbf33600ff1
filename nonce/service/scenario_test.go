package service_test

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// scenarios are the decisions of a service that a script can show: what nodes over one store are
// asked and answer, in fake time, while the store, the logs, the chain and the nodes fail as the
// script says. testdata/README.txt has their words.
//
//go:embed testdata/*.txt
var scenarios embed.FS

func TestScenarios(t *testing.T) {
	files, err := scenarios.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := scenarios.ReadFile("testdata/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, script := range noncetest.Scripts(string(text)) {
			ways := map[string]func(*service.Config){"": func(*service.Config) {}}
			lines, both := strings.CutPrefix(script.Script, "in both modes\n")
			if both {
				ways = modes
			}
			for mode, change := range ways {
				t.Run(strings.TrimSuffix(file.Name(), ".txt")+"/"+script.Name+"/"+mode, func(t *testing.T) {
					inLogs(t, func(l *logged) {
						s := &scenario{
							logged: l, mode: change, chain: &noncetest.Chain{}, named: map[string]*node{}, ways: map[string]*logWay{},
							ops: map[string]*pending{}, undo: map[string]func(){}, paths: map[string]*nonce.Path{}, calls: map[string]int{},
						}
						l.disk.onBefore(func(c memstore.Call) error { return s.meets(c, false) })
						l.disk.onAfter(func(c memstore.Call) error { return s.meets(c, true) })
						defer s.heal()
						s.run(slices.Collect(strings.SplitSeq(lines, "\n")))
					})
				})
			}
		}
	}
}

// scenario is a script under way.
type scenario struct {
	*logged
	mode  func(*service.Config) // of nodes that name none
	chain *noncetest.Chain
	ways  map[string]*logWay
	undo  map[string]func() // by name, to restore a backup, mend a row or open what is held
	began chan struct{}     // closed when a call is held

	late memstore.Call // that broke before the store saw it

	ending  sync.WaitGroup // of what goes on beside the script
	quiet   atomic.Int64   // nodes that have stopped
	cluster *cluster       // of the nodes that are linked
	paths   map[string]*nonce.Path

	mu       sync.Mutex // guards what follows: calls of the store play lines, too
	named    map[string]*node
	ops      map[string]*pending
	faults   []*fault
	calls    map[string]int // of the store, since they were asked for
	listings int            // writes that list a signer
}

// run runs lines; those that are indented belong to the line before them.
func (s *scenario) run(lines []string) {
	s.Helper()
	for i := 0; i < len(lines); {
		line := strings.TrimRight(inShard.ReplaceAllStringFunc(lines[i], s.signer), " ")
		i++
		var block []string
		for ; i < len(lines) && strings.HasPrefix(lines[i], "  "); i++ {
			block = append(block, strings.TrimPrefix(lines[i], "  "))
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if each, all := strings.CutPrefix(line, "all "); all { // asks for a nonce of each shard
			node, more, _ := strings.Cut(each, ":")
			for shard := range shards {
				s.run([]string{fmt.Sprintf("%s: allocate signer=@%d %s", node, shard, more)})
			}
			continue
		}
		ask, want, check := strings.Cut(line, " ->")
		want = strings.TrimSpace(want)
		right := func(got string) bool { return got == want }
		if other, not := strings.CutPrefix(want, "not "); not {
			right = func(got string) bool { return got != other }
		}
		var got string
		if within, what, waits := strings.Cut(ask, ": "); waits && strings.HasPrefix(within, "within ") {
			s.await(s.duration(strings.TrimPrefix(within, "within ")), line, func() bool { return right(s.do(what, nil)) })
			continue
		}
		if got = s.do(ask, block); check && !right(got) {
			s.Errorf("%s: got %q, want %q", ask, got, want)
		}
	}
}

// signer is the signer that @0 and @0b name, of shard 0.
func (s *scenario) signer(word string) string {
	which := 0
	if len(word) > 2 {
		which = int(word[2] - 'a')
	}
	for i := 0; ; i++ {
		name := fmt.Sprint("in-", i)
		if nonce.ShardOf(name, shards) == int(word[1]-'0') {
			if which == 0 {
				return name
			}
			which--
		}
	}
}

func (s *scenario) duration(text string) time.Duration {
	s.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func (s *scenario) node(name string) *node {
	s.Helper()
	s.mu.Lock()
	n := s.named[name]
	s.mu.Unlock()
	if n == nil {
		s.Fatalf("there is no node %q", name)
	}
	return n
}

// op is one that was sent under a name; nil: none was.
func (s *scenario) op(id string) *pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops[id]
}

// do does what a line says.
func (s *scenario) do(ask string, block []string) string {
	s.Helper()
	word, rest, _ := strings.Cut(ask, " ")
	rest = strings.TrimSpace(rest)
	switch name := word[:len(word)-1]; word[len(word)-1] {
	case ':':
		return s.node(name).run(rest)
	case '!': // as another node asks
		op := parse(s.T, rest)
		if s.paths[name] == nil {
			s.paths[name] = new(nonce.Path)
		}
		return s.node(name).doOf(s.paths[name], op)
	case '|':
		var ops []*noncetest.Op
		for op := range strings.SplitSeq(rest, "; ") {
			ops = append(ops, parse(s.T, strings.TrimSpace(op)))
		}
		return strings.Join(s.node(name).batch(ops...), "; ")
	case '>':
		id, op, _ := strings.Cut(rest, " ")
		sent := s.node(name).send(parse(s.T, op))[0]
		s.mu.Lock()
		s.ops[id] = sent
		s.mu.Unlock()
		synctest.Wait()
		return ""
	}
	if p := s.op(word); p != nil {
		return p.wait()
	}
	words := strings.Fields(rest)
	if asked := s.asked(word, append(words, "", "")); asked != "?" {
		return asked
	}
	s.change(word, words, block)
	return ""
}

// change does what a line without an answer says.
func (s *scenario) change(word string, words, block []string) {
	s.Helper()
	first := ""
	if len(words) > 0 {
		first = words[0]
	}
	switch word {
	case "start":
		s.startNode(first, words[1:])
	case "wait":
		pass(s.duration(first))
	case "waits": // of ops that were sent
		for _, id := range words {
			if synctest.Wait(); s.op(id).answered() {
				s.Errorf("%s was told %s", id, s.op(id).wait())
			}
		}
	case "chain":
		s.chain.Say(s.T, words...)
	case "repeat":
		times, _ := strconv.Atoi(strings.TrimSuffix(first, ":"))
		for range times {
			s.run(block)
		}
	case "fail":
		act := outcomes[words[len(words)-1]]
		if act == nil {
			s.Fatalf("how does a call fail that is %q?", words[len(words)-1])
		}
		s.fault(words[:len(words)-1], act)
	case "slow":
		took := s.duration(words[len(words)-1])
		s.fault(words[:len(words)-1], func(memstore.Call) error { time.Sleep(took); return nil })
	case "hold":
		began, open := make(chan struct{}), make(chan struct{})
		s.began, s.undo["hold"] = began, sync.OnceFunc(func() { close(open) })
		end := outcomes[words[len(words)-1]]
		if end == nil {
			end = outcomes["well"]
		}
		s.fault(append(words, "once"), func(c memstore.Call) error { close(began); <-open; return end(c) })
	case "held":
		<-s.began
	case "open":
		s.undo["hold"]()
		synctest.Wait()
	case "during", "during:": // what happens then, and how the call ends
		words[len(words)-1] = strings.TrimSuffix(words[len(words)-1], ":")
		end := outcomes[block[len(block)-1]]
		if end == nil {
			s.Fatalf("how does a call end that is %q?", block[len(block)-1])
		}
		s.fault(append(words, "once"), func(c memstore.Call) error { s.run(block[:len(block)-1]); return end(c) })
	case "crowd": // a node hands out whenever the other commits
		s.fault(words[:1], func(c memstore.Call) error {
			if c.Holder.Node != words[1] {
				s.node(words[1]).run("allocate")
			}
			return nil
		})
	case "late": // a call whose connection broke before the store saw it
		s.fault(append(words, "once"), func(c memstore.Call) error { s.late = c; return errCut })
	case "heal":
		s.heal()
	case "lock":
		var met atomic.Bool
		s.disk.onLock(func(name string) bool { return name == signer && (first != "once" || met.CompareAndSwap(false, true)) })
	case "unlock":
		s.disk.onLock(nil)
	case "backup":
		s.undo["backup "+first] = s.disk.Backup()
	case "restore":
		s.undo["backup "+first]()
	case "damage":
		s.undo["damage"] = s.disk.Damage(cmp.Or(first, signer))
	case "mend":
		s.undo["damage"]()
	case "generation":
		s.disk.RaiseGeneration()
	case "clock":
		s.disk.ahead.Add(int64(s.duration(strings.TrimPrefix(first, "+"))))
	case "takeaway":
		s.disk.takeAway(first)
	case "give":
		s.disk.give(append(words, signer)[1], s.node(first))
	case "mute":
		s.disk.mute(first, true)
	case "unmute":
		s.disk.mute(first, false)
	case "part": // a node and the store lose each other
		s.disk.mute(first, true)
		s.fault([]string{"any", "node=" + first}, storeAway)
	case "leave":
		if err := s.disk.Leave(s.Context(), s.disk.holder(s.T, first)); err != nil {
			s.Fatal(err)
		}
	case "pin":
		for shard := range shards {
			if first != "all" && first != strconv.Itoa(shard) {
				continue
			}
			if err := s.disk.Pin(s.Context(), shard, words[1]); err != nil {
				s.Fatal(err)
			}
		}
	case "flush":
		s.server.flush()
	case "forget": // the keys of one shard
		shard, _ := strconv.Atoi(first)
		s.server.mu.Lock()
		delete(s.server.shards, shard)
		s.server.mu.Unlock()
	case "steal": // an acquire of which the node does not know
		rows, err := s.disk.Acquire(s.Context(), s.disk.holder(s.T, first), []int{nonce.ShardOf(words[1], shards)})
		if err != nil || !rows[0].Taken {
			s.Fatal(rows, err)
		}
	case "ended":
		s.ending.Wait()
	case "cluster":
		s.startCluster(words)
	case "away", "back":
		s.cluster.set(func() { s.cluster.away[first] = word == "away" })
	case "lose": // answers of other nodes
		var left atomic.Int64
		n, err := strconv.Atoi(first)
		if err != nil {
			s.Fatal(err)
		}
		left.Store(int64(n))
		s.cluster.set(func() { s.cluster.lose = func() bool { return left.Add(-1) >= 0 } })
	case "forward": // what happens before a node is given the n-th op from now on
		nth, sent := strings.TrimSuffix(first, ":"), 0
		s.cluster.set(func() {
			s.cluster.before = func() {
				if sent++; fmt.Sprint(sent) == nth {
					s.run(block)
				}
			}
		})
	case "log":
		s.ways[first].fails(s.T, words[1], len(words) < 3)
	default:
		s.changeNode(word, s.node(first), append(words, "")[1])
	}
}

func (s *scenario) changeNode(word string, n *node, more string) {
	s.Helper()
	switch word {
	case "stop":
		n.Stop()
	case "stepdown":
		n.StepDown()
	case "retire": // as stepdown, and what follows goes on beside it
		s.ending.Go(n.StepDown)
	case "stopping": // as stop, and so does this
		s.ending.Go(func() { n.Stop(); s.quiet.Add(1) })
		synctest.Wait()
	case "halt":
		n.Halt(lease.ErrWentBack)
	case "on":
		s.on(n)
	case "off":
		s.switchTo(n, false, 0)
	case "rehearse":
		s.switchTo(n, true, s.duration(more))
	case "ship":
		n.engine.Ship()
	case "tend":
		if err := n.Tend(s.Context(), signer); err != nil {
			s.Fatal(err)
		}
	default:
		s.Fatalf("what is %q?", word)
	}
}

// settingsOf are what words of a start mean.
var settingsOf = map[string]func(c *service.Config, n int, d time.Duration){
	"callerruns": func(c *service.Config, _ int, _ time.Duration) { callerRuns(c) },
	"batch":      func(c *service.Config, n int, _ time.Duration) { c.MaxBatch = n },
	"slots":      func(c *service.Config, n int, _ time.Duration) { c.QueueCapacity = n },
	"refusenew":  func(c *service.Config, _ int, _ time.Duration) { c.Rules.NewSigners = nonce.RefuseNew },
	"basic":      func(c *service.Config, _ int, _ time.Duration) { basicMode(c) },
	"workers":    func(c *service.Config, n int, _ time.Duration) { c.Workers = n },
	"signers":    func(c *service.Config, n int, _ time.Duration) { c.MaxSigners = n },
	"holds":      func(c *service.Config, n int, _ time.Duration) { c.Rules.MaxLive = n },
	"sweep":      func(c *service.Config, _ int, d time.Duration) { c.SweepInterval = d },
	"watch":      func(c *service.Config, _ int, d time.Duration) { c.WatchEvery = d },
	"lockwait":   func(c *service.Config, _ int, d time.Duration) { c.LockWait = d },
	"lease":      func(c *service.Config, _ int, d time.Duration) { c.LeaseTTL = d },
	"history":    func(c *service.Config, _ int, d time.Duration) { c.HistoryRetention = d },
	"requests":   func(c *service.Config, _ int, d time.Duration) { c.RequestRetention = d },
	"timeout":    func(c *service.Config, _ int, d time.Duration) { c.StoreTimeout = d },
	"shipping":   func(c *service.Config, _ int, d time.Duration) { logs(c).ShipEvery, logs(c).ShipSoon = d, d },
	"sla":        func(c *service.Config, _ int, d time.Duration) { logs(c).ShipSLA = d },
}

// startNode starts a node, which has a way to the logs if it says so.
func (s *scenario) startNode(name string, words []string) {
	s.Helper()
	label, id, again := strings.Cut(name, "=")
	if !again {
		id = name
	}
	change := s.settings(words)
	var n *node
	if slices.Contains(words, "log") {
		n, s.ways[label] = s.logged.start(id, change)
	} else {
		n = start(s.T, s.disk, id, change)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named[label] = n
}

// settings are those that words of a start are.
func (s *scenario) settings(words []string) func(*service.Config) {
	return func(c *service.Config) {
		s.mode(c)
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(value)
			d, _ := time.ParseDuration(value)
			switch set := settingsOf[key]; {
			case set != nil:
				set(c, n, d)
			case key == "chain":
				c.Chain = s.chain
			case key == "says-known":
				logs(c).Store = saysKnown{s.disk}
			case key != "log":
				s.Fatalf("what is %q?", word)
			}
		}
	}
}

// startCluster starts nodes that are linked, the first of which is to have all shards.
func (s *scenario) startCluster(words []string) {
	s.Helper()
	at := slices.IndexFunc(words, func(word string) bool { return strings.Contains(word, "=") })
	if at < 0 {
		at = len(words)
	}
	s.cluster = newCluster(s.T, s.disk, words[:at], s.settings(words[at:]))
	s.mu.Lock()
	maps.Copy(s.named, s.cluster.nodes)
	s.mu.Unlock()
	pass(time.Second)
}
