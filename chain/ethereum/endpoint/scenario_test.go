package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/access/quota"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
)

// TestScenarios plays testdata/*.txt; testdata/README.md has the format.
func TestScenarios(t *testing.T) {
	expect.Scripts(t, "testdata/*.txt", func(t *testing.T, script *expect.Script) {
		s := &scene{clients: make(map[string]*client), names: map[chain.Hash]string{{}: ""}, people: new(inprocess.People)}
		settings := script.Option("gateway")
		s.gateway = startGateway(t, func(to *setup) {
			to.endpoint.OfferAgain, to.Service.LockWait = time.Hour, 50*time.Millisecond
			for _, word := range settings {
				s.set(t, to, word)
			}
		})
		script.Play(s.step)
	})
}

// scene is a gateway whose transactions have names.
type scene struct {
	*gateway
	clients map[string]*client // by who they are
	names   map[chain.Hash]string
	people  *inprocess.People
}

var rights = map[string]access.Right{
	"allocate": access.RightAllocate, "mark": access.RightMark, "read": access.RightRead,
	"chain": access.RightChain, "repair": access.RightRepair,
	"wallet": access.RightAllocate | access.RightMark, "every": everyRight, "none": 0,
}

// set changes one setting of the gateway, NAME=VALUE; a principal is user=NAME:RIGHT+RIGHT[:LIMIT=N].
func (s *scene) set(t *testing.T, to *setup, word string) {
	name, value, _ := strings.Cut(word, "=")
	lasts := func() time.Duration { d, err := time.ParseDuration(value); must(t, err); return d }
	switch name {
	case "take":
		to.endpoint.Take = value == "on"
	case "order":
		to.endpoint.OrderWait = lasts()
	case "ready":
		to.endpoint.ReadyWait = lasts()
	case "window":
		to.chain.Window = integer(value)
	case "signers":
		to.ws.Signers.Rate = quota.Rate{PerSecond: 0.001, Burst: int(integer(value))}
	case "user":
		to.ws.Auth = s.people
		parts := strings.Split(value, ":")
		var r access.Right
		for right := range strings.SplitSeq(parts[1], "+") {
			r |= rights[right]
		}
		s.people.Grant(parts[0], "*", r)
		for _, limit := range parts[2:] {
			kind, n, _ := strings.Cut(limit, "=")
			s.people.Limit(parts[0], map[string]access.Quota{
				"burst": {RequestsPerSecond: 0.001, Burst: int(integer(n))},
				"holds": {OpenHolds: int(integer(n))}, "new": {NewSigners: int(integer(n))},
			}[kind])
		}
	case "boss":
		to.endpoint.Replaces = func(p nonce.Principal) bool { return p == nonce.PrincipalOf(value) }
	default:
		t.Fatalf("there is no setting %q", word)
	}
}

func integer(text string) int64 {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		panic(err) // which names the text
	}
	return n
}

// step does what one line says, and returns what is shown below it.
func (s *scene) step(command string, args []string) (shown []string) {
	s.Helper()
	who, rest := "", args
	if len(args) > 1 && args[0] == "as" {
		who, rest = args[1], args[2:]
	}
	text := strings.Join(rest, " ")
	switch command {
	case "call":
		return s.reply(s.as(who).call(rest[0], strings.ReplaceAll(strings.Join(rest[1:], " "), "ADA", ada)))
	case "send":
		return s.reply(s.as(who).send(s.transaction(rest)))
	case "post":
		return s.post(who, rest)
	case "allocate":
		return []string{fmt.Sprint(s.allocate(signer(ada), who))}
	case "release":
		must(s.TB, s.gateway.do(&nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: signer(ada), Nonce: integer(text), Attempt: 1}))
	case "marked": // without a hash
		must(s.TB, s.gateway.do(&nonce.Request{Kind: nonce.KindMarkUsed, Signer: signer(ada), Nonce: integer(text), Attempt: 1}))
	case "signed": // by another gateway, which may have sent it
		op := &nonce.Request{Kind: nonce.KindMarkSigned, Signer: signer(ada), Nonce: integer(rest[0]), TxHash: hashOf(s.transaction(rest)),
			Forwarded: true}
		must(s.TB, s.gateway.do(op))
	case "says":
		v, counted := s.verdict(rest)
		s.nodes.saysBy(func(chain.Tx) chain.Verdict {
			if counted > 0 {
				s.nodes.at(ada, chain.Start{Pending: counted})
			}
			if v.RetryAfter < 0 {
				s.Store.SetHooks(stores["away"])
			}
			return v
		})
	case "answer":
		s.answer(rest[0], rest[1:])
	case "at":
		s.nodes.at(ada, chain.Start{Latest: integer(rest[0]), Pending: integer(rest[1])})
	case "used":
		s.nodes.locked(func() { s.nodes.mined[integer(rest[0])] = hashOf(s.transaction(rest)) })
	case "alone":
		s.nodes.locked(func() { s.nodes.alone = true })
	case "away":
		s.nodes.goAway()
	case "block": // of which the count is known when it goes on
		latest := integer(rest[0])
		s.nodes.at(ada, chain.Start{Latest: latest, Pending: latest})
		var uses []chain.Use
		if len(rest) > 1 {
			tx := s.transaction(append([]string{fmt.Sprint(latest - 1)}, rest[1:]...))
			uses = append(uses, chain.Use{Account: ada, Nonce: latest - 1, Tx: hashOf(tx)})
		}
		s.nodes.newHead(latest+1, uses...)
		wait.Until(s.TB, "the count", func() bool {
			st, ok := s.endpoint.chains.State(signer(ada))
			return ok && st.Mined == latest
		})
	case "forget":
		must(s.TB, s.Store.ForgetSent(s.Context(), signer(ada), integer(text)))
	case "store":
		s.Store.SetHooks(stores[text])
	case "refuse":
		s.nodes.refuse = nil
		if text != "nothing" {
			s.nodes.refuse = &rpcError{Code: int(integer(rest[0])), Message: strings.Join(rest[1:], " ")}
		}
	case "fell":
		s.nodes.finalFalls()
	case "row":
		row := s.row(signer(ada), integer(text))
		shown := fmt.Sprint(row.Status, " ", s.names[row.TxHash])
		for i := range row.Replaced.Len() {
			shown += " after " + s.names[row.Replaced.At(i)]
		}
		return []string{strings.TrimSpace(strings.TrimSpace(shown) + " " + row.Reason)}
	case "given":
		return []string{fmt.Sprint(slices.Sorted(slices.Values(s.nodes.given())))} // those recorded together go in any order
	case "asked":
		return []string{fmt.Sprint(s.nodes.askedFor(text))}
	case "figures":
		for _, series := range args {
			shown = append(shown, fmt.Sprint(series, " ", s.Metric(series)))
		}
	default:
		s.Fatalf("there is no command %q", command)
	}
	return shown
}

var errAway, errCut = errors.New("away"), errors.New("cut")

// stores are states of the store: it does everything, nothing, or answers no commit, so that nothing settles it.
var stores = map[string]memstore.Hooks{
	"well": {},
	"away": {Before: func(memstore.Call) error { return &nonce.StoreError{Outcome: nonce.NotSent, Err: errAway} }},
	"cut": {Before: func(call memstore.Call) error {
		switch call.Op {
		case memstore.OpCommit:
			return &nonce.StoreError{Outcome: nonce.Unknown, Err: errCut}
		case memstore.OpSent:
			return nil
		}
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: errAway}
	}},
}

// as is a connection in somebody's name.
func (s *scene) as(who string) *client {
	if s.clients[who] == nil {
		s.clients[who] = s.dialAs(who)
	}
	return s.clients[who]
}

// transaction is NONCE PAYS of ada, whose name is what it pays.
func (s *scene) transaction(args []string) string {
	pays := strings.Join(args[1:], " ")
	raw := transaction(ada, integer(args[0]), pays)
	s.names[hashOf(raw)] = pays
	return raw
}

// verdict is CLASS [FLAG …] [data=JSON] [retry=TIME] [pending=N] [away] [CODE MESSAGE]. pending is what the nodes
// count from then on.
func (s *scene) verdict(words []string) (v chain.Verdict, counted int64) {
	v.Class = classOf(s.TB, words[0])
	for i, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "missing":
			v.Missing = true
		case "later":
			v.Later = true
		case "unanswered":
			v.Unanswered = true
		case "before":
			v.Before = true
		case "disputed":
			v.Disputed = true
		case "retry":
			v.RetryAfter, _ = time.ParseDuration(value)
		case "data":
			v.Data = []byte(value)
		case "pending":
			counted = integer(value)
		case "away": // the store is, from then on
			v.RetryAfter = -1
		default:
			v.Code, v.Message = int(integer(word)), strings.ReplaceAll(strings.Join(words[i+2:], " "), `\n`, "\n")
			return v, counted
		}
	}
	return v, counted
}

// answer has the nodes answer a method with JSON, error CODE MESSAGE, or a failure to ask them.
func (s *scene) answer(method string, words []string) {
	result, refusal, err := strings.Join(words, " "), (*rpcError)(nil), error(nil)
	switch words[0] {
	case "error":
		refusal = &rpcError{Code: int(integer(words[1])), Message: strings.Join(words[2:], " ")}
	case "fails":
		err = map[string]error{"unreachable": chain.ErrUnreachable, "busy": ethereum.ErrBusy, "large": ethereum.ErrTooLarge}[words[1]]
		err = errors.Join(err, errors.New("x"))
	}
	s.nodes.answer(method, func(string) (string, *rpcError, error) { return result, refusal, err })
}

// post is METHOD PATH [origin=URL] [replace=WORD] BODY, and shows status and answer.
func (s *scene) post(who string, args []string) []string {
	method, path, args, header := args[0], args[1], args[2:], http.Header{}
	for len(args) > 0 && strings.Contains(args[0], "=") && args[0][0] != '{' && args[0][0] != '[' {
		name, value, _ := strings.Cut(args[0], "=")
		header.Set(map[string]string{"origin": "Origin", "replace": "Noncegate-Replace"}[name], strings.ReplaceAll(value, "HERE", s.address))
		args = args[1:]
	}
	body := strings.Join(args, " ")
	if tx, is := strings.CutPrefix(body, "raw "); is {
		body = call("1", methodSend, `["`+s.transaction(strings.Fields(tx))+`"]`)
	}
	body = rawOf.ReplaceAllStringFunc(body, func(tx string) string { return s.transaction(strings.Split(tx[len("RAW:"):], ":")) })
	status, answer, got := s.request(who, method, path, body, header)
	if allowed := got.Get("Access-Control-Allow-Origin"); allowed != "" {
		answer = "(allowed) " + answer
	}
	return []string{strings.TrimSpace(fmt.Sprint(status, " ", s.named(answer)))}
}

// ofQuota is how soon a quota lets the next request in, which depends on when it was asked.
var ofQuota = regexp.MustCompile(`("stage":"quota"),"retryAfterMs":\d+`)

// rawOf is a transaction within a body, subscriptionID the id of a subscription.
var rawOf, subscriptionID = regexp.MustCompile(`RAW:\d+:\w+`), regexp.MustCompile(`^"0x[0-9a-f]{32}"$`)

// named has names of transactions in place of their hashes.
func (s *scene) named(text string) string {
	for hash, name := range s.names {
		if name != "" {
			text = strings.ReplaceAll(text, hash.String(), "hash of "+name)
		}
	}
	text = subscriptionID.ReplaceAllString(text, "an id")
	text = ofQuota.ReplaceAllString(text, "$1")
	return strings.NewReplacer(ada, "ADA", "\n", `\n`).Replace(text)
}

// reply shows a result, or an error with its data.
func (s *scene) reply(r *reply) []string {
	if r.Error == nil {
		return []string{s.named(string(r.Result))}
	}
	var data map[string]json.RawMessage
	if json.Unmarshal(r.Error.Data, &data) == nil {
		if data["stage"] != nil { // how soon depends on when it was asked
			delete(data, "retryAfterMs")
		}
		r.Error.Data, _ = json.Marshal(data)
	}
	return []string{strings.TrimSpace(s.named(fmt.Sprintf("error %d %s %s", r.Error.Code, r.Error.Message, r.Error.Data)))}
}
