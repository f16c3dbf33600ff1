package main

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/client"
	"noncegate/test/interop/npm"
	"noncegate/test/lab/guarded"
)

//go:embed package.mjs
var packageProgram string

// packaged is the package for TypeScript, built, and how its programs are started.
type packaged struct {
	room *guarded.Room
	dir  string
	args []string // but for the URL of a node
	env  []string
}

func startPackage(h *host, s *soak, kind string) *packaged {
	room, err := guarded.Open("package", nil)
	h.must(err)
	h.closing("the package's programs", room.Close)
	dir := filepath.Join(room.Dir(), "sdk")
	h.must(npm.TypeScript(h.ctx, dir))
	h.must(os.WriteFile(filepath.Join(dir, "package.mjs"), []byte(packageProgram), 0o600))
	var keys []string
	for _, a := range s.accounts {
		keys = append(keys, "0x"+hex.EncodeToString(crypto.FromECDSA(a.Key)))
	}
	return &packaged{room: room, dir: dir, args: []string{kind, s.chain.ChainID().String()}, env: append(os.Environ(), "KEYS="+strings.Join(keys, ","))}
}

// packageSource is a process that pays for one worker, and is killed when that crashes. It gives no nonces: a payment is begun
// and finished by it.
type packageSource struct {
	source // of which close alone is there
	*soak
	process *guarded.Process
	node    *rpc.Client
}

func (s *soak) startPackageSource(ctx context.Context, worker int) (*packageSource, error) {
	p := s.packaged
	args := append([]string{"node", filepath.Join(p.dir, "package.mjs")}, p.args...)
	args = append(args, s.proxies[worker%len(s.proxies)].URL())
	for i := range s.gateways {
		args = append(args, "ws://"+s.gateways[(worker+i)%len(s.gateways)].listen+"/ws")
	}
	process, err := p.room.Start(fmt.Sprintf("log-%d-%d", worker, time.Now().UnixNano()), p.env, args...)
	if err != nil {
		return nil, err
	}
	source := &packageSource{soak: s, process: process}
	url, err := listensOn(ctx, process)
	if err == nil {
		source.node, err = rpc.DialContext(s.ctx, url)
	}
	if err != nil {
		source.close()
		return nil, err
	}
	return source, nil
}

// close is kill -9.
func (s *packageSource) close() {
	_ = s.process.Signal(syscall.SIGKILL)
	_ = s.process.Err()
}

// job is what the process is asked to do.
type job struct {
	Account int    `json:"account"`
	To      string `json:"to,omitempty"`
	Value   string `json:"value,omitempty"`
	Data    string `json:"data,omitempty"`
	Hash    string `json:"hash,omitempty"` // of a transaction to be replaced
	Raw     string `json:"raw,omitempty"`
	Hold    *held  `json:"hold,omitempty"`
}

// held is a hold in JSON.
type held struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Attempt int64  `json:"attempt"`
}

// begin has a transaction be signed, with a nonce that is held.
func (s *packageSource) begin(ctx context.Context, j job) (tx *types.Transaction, t ticket, err error) {
	var got struct {
		Raw  hexutil.Bytes
		Hold held
	}
	if err = s.call(ctx, &got, "begin", j); err != nil {
		return nil, t, err
	}
	tx = new(types.Transaction)
	if err = tx.UnmarshalBinary(got.Raw); err != nil {
		return nil, t, err
	}
	return tx, ticket{nonce: tx.Nonce(), hold: client.Hold(got.Hold), first: true}, nil
}

func (s *packageSource) call(ctx context.Context, result any, method string, argument any) error {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	return s.node.CallContext(ctx, result, method, argument)
}

// finish has a transaction be sent that begin has signed, and returns what the package said then.
func (s *packageSource) finish(ctx context.Context, tx *types.Transaction) string {
	return s.said(ctx, "finish", rawOf(tx))
}

// again sends what was signed before.
func (s *packageSource) again(ctx context.Context, e *entry, tx *types.Transaction) string {
	return s.said(ctx, "again", job{Account: e.account, Raw: rawOf(tx), Hold: new(held(e.ticket.hold))})
}

func (s *packageSource) said(ctx context.Context, method string, argument any) (said string) {
	if err := s.call(ctx, &said, method, argument); err != nil {
		return "no answer"
	}
	s.happens("the package said: " + said)
	return said
}

func rawOf(tx *types.Transaction) string {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err) // it was signed
	}
	return hexutil.Encode(raw)
}

// errGivenBack says that nothing was sent, or that no node has it, and that the nonce is not the payment's any more.
var errGivenBack = errors.New("the package gave the nonce back")

// payByPackage is what spend and its neighbours do with the package instead.
func (w *incarnation) payByPackage(s *packageSource, p *payment, plan plan) error {
	w.crashSoon(plan, crashTaken)
	tx, t, err := s.begin(w.ctx, job{Account: p.account, To: sink.Hex(), Value: fmt.Sprint(p.id), Data: hexutil.Encode(payload(p.id))})
	if err != nil {
		w.happens("payments that did not begin")
		return err // what is signed is not recorded, and never will be
	}
	e := w.ledger.write(&entry{owner: w.id, payment: p, account: p.account, ticket: t, bump: plan.mishap == bump}, tx)
	if w.crash(plan, crashWritten) {
		return errCrash
	}
	switch plan.mishap {
	case signFails: // it is never finished
		w.ledger.drop(e, false)
		return errGivenBack
	case late:
		sleep(w.ctx, holdTTL+plan.pause)
	case slow:
		sleep(w.ctx, holdTTL/2)
	}
	if w.ledger.toSend(e) == nil || w.ctx.Err() != nil {
		return errUnsure
	}
	w.crashSoon(plan, crashRecorded, crashSent)
	switch said := s.finish(w.ctx, tx); said {
	case "given back", "conflict", "nothing sent":
		if w.ledger.drop(e, true) {
			return errGivenBack
		}
	case "sent":
		if plan.mishap == twice {
			s.again(w.ctx, e, tx)
		}
	}
	return errUnsure // until it is mined
}

// crashSoon kills the worker at some time of the next moment.
func (w *incarnation) crashSoon(p plan, at ...mishap) {
	if slices.Contains(at, p.mishap) {
		w.happens("crashes of workers")
		time.AfterFunc(rand.N(30*time.Millisecond), func() { w.cancel(errCrash) })
	}
}

// againByPackage goes on with what was signed before a crash, or is not mined for long.
func (w *incarnation) againByPackage(s *packageSource, g glance) {
	never := g.state == prepared // it was not sent
	if tx := w.ledger.toSend(g.of); tx != nil {
		w.happens("sent again")
		if s.again(w.ctx, g.of, tx) == "conflict" && never && w.ledger.drop(g.of, true) {
			w.ledger.back(g.payment, true, 0)
		}
	}
}

// bumpByPackage replaces a transaction by one with higher fees.
func (w *incarnation) bumpByPackage(s *packageSource, g glance) {
	tx, _, err := s.begin(w.ctx, job{Account: g.account, Hash: g.txs[0].Hash().Hex()})
	if err != nil {
		w.happens("replacements that did not begin")
		return
	}
	w.ledger.locked(func() { g.of.txs = append(g.of.txs, tx) })
	if w.ledger.toSend(g.of) != nil && s.finish(w.ctx, tx) == "sent" {
		w.happens("replaced")
	}
}
