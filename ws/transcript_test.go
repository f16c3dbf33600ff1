package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// TestTranscripts plays testdata/*.txt, each on a connection and a gateway of its
// own. testdata/README.md describes the format.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	if len(files) < 50 {
		t.Fatalf("found %d transcripts, there were 50", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			must(t, err)
			play(t, string(text))
		})
	}
}

// transcript is one that is being played.
type transcript struct {
	*client
	g      *gateway
	chain  *fakeChain
	names  map[string]string // what placeholders with a name stood for
	closed bool
}

func play(t *testing.T, text string) {
	chain := new(fakeChain)
	g := startGateway(t, withChain(chain), func(s *setup) { s.Service.Rules.MaxLive = 5; s.ws.MaxBatch = 5 })
	p := &transcript{client: g.dial(), g: g, chain: chain, names: map[string]string{}}
	for n, line := range strings.Split(text, "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch verb {
		case "", "#":
		case "-->":
			err = p.conn.WriteMessage(websocket.TextMessage, []byte(p.fill(rest)))
		case "<--":
			err = p.expect(rest)
		case "==":
			err = p.do(strings.Fields(rest))
		default:
			err = errors.New("a line begins with -->, <--, == or #")
		}
		if err != nil {
			t.Fatalf("line %d: %s\n%v", n+1, line, err)
		}
	}
	p.finish()
}

// fill puts what names stand for into a line to be sent.
func (p *transcript) fill(line string) string {
	for name, value := range p.names {
		line = strings.ReplaceAll(line, "<"+name+">", value)
	}
	return line
}

// expect compares the next frame of the wanted kind.
func (p *transcript) expect(line string) error {
	if code, ok := strings.CutPrefix(line, "close "); ok {
		p.closed = true
		if got := p.client.closed(); strconv.Itoa(got) != code {
			return fmt.Errorf("closed with %d", got)
		}
		return nil
	}
	want, err := decode(line)
	if err != nil {
		return err
	}
	var got any
	switch w := want.(type) {
	case []any:
		got = p.batch()
	case map[string]any:
		if _, ok := w["method"]; ok {
			got = p.notification()
		} else {
			got = p.reply()
		}
	}
	return p.match(want, got, "")
}

func decode(line string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	return v, d.Decode(&v)
}

// match compares two decoded values; a string of the wanted one may be a
// placeholder. Objects must have the same members.
func (p *transcript) match(want, got any, path string) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s is %s", path, show(got))
		}
		for name := range w {
			if err := p.match(w[name], g[name], path+"."+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s is %s", path, show(got))
		}
		for i := range w {
			if err := p.match(w[i], g[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	case string:
		if strings.HasPrefix(w, "<") {
			return p.matchPlaceholder(w, fmt.Sprint(got), path)
		}
	}
	if got != want {
		return fmt.Errorf("%s is %s, want %s", path, show(got), show(want))
	}
	return nil
}

func show(v any) string { text, _ := json.Marshal(v); return string(text) }

// placeholders are the shapes a placeholder can stand for.
var placeholders = map[string]*regexp.Regexp{
	"time":   regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`),
	"number": regexp.MustCompile(`^-?\d+(\.\d+)?$`),
	"id":     regexp.MustCompile(`^0x[0-9a-f]{32}$`),
	"any":    regexp.MustCompile(``),
}

// matchPlaceholder compares with <shape> or <shape name>. A name means the same
// everywhere in a transcript.
func (p *transcript) matchPlaceholder(placeholder, got, path string) error {
	shape, name, named := strings.Cut(strings.Trim(placeholder, "<>"), " ")
	re := placeholders[shape]
	if re == nil {
		return fmt.Errorf("there is no placeholder %s", placeholder)
	}
	if !re.MatchString(got) {
		return fmt.Errorf("%s is %s, want %s", path, got, placeholder)
	}
	if before, seen := p.names[name]; named && seen && before != got {
		return fmt.Errorf("%s is %s, but <%s> was %s", path, got, name, before)
	}
	if named {
		p.names[name] = got
	}
	return nil
}

// do carries out a directive about the world around the connection.
func (p *transcript) do(words []string) error {
	unknown := &nonce.StoreError{Outcome: nonce.Unknown, Err: errors.New("cut")}
	away := &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("away")}
	switch words[0] {
	case "store-works":
		p.g.Store.SetHooks(memstore.Hooks{})
	case "store-away":
		p.g.Store.SetHooks(memstore.Hooks{Before: func(memstore.Call) error { return away }})
	case "commits-unknown":
		p.g.Store.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
			if c.Op == memstore.OpCommit {
				return unknown
			}
			return away // so that the service cannot settle it
		}})
	case "owned-by":
		return p.takeOver(words[1], words[2])
	case "chain":
		return p.chain.says(words[1:])
	case "unknown":
		return p.g.rewrite(words[1], words[2], nonce.ReasonUnknown, nonce.Held)
	case "unseen":
		return p.g.rewrite(words[1], words[2], nonce.ReasonUnseen, nonce.Released)
	case "draining":
		p.g.srv.draining.Store(true)
	case "send-binary":
		return p.conn.WriteMessage(websocket.BinaryMessage, []byte(words[1]))
	case "send-bytes":
		n, err := strconv.Atoi(words[1])
		return errors.Join(err, p.conn.WriteMessage(websocket.TextMessage, make([]byte, n)))
	default:
		return fmt.Errorf("there is no directive %s", words[0])
	}
	return nil
}

// takeOver lets a node take the shard of a signer: another one, which the service gets to
// know, or a later start of our own node id, which it does not.
func (p *transcript) takeOver(signer, node string) error {
	if node != p.g.Holder.Node {
		p.g.moves(signer, node)
		return nil
	}
	by, err := p.g.Store.Register(context.Background(), lease.Presence{Node: node, URL: "ws://" + node + ".example/ws"})
	if err == nil {
		_, err = p.g.Store.Renew(context.Background(), by, time.Hour)
	}
	if err != nil {
		return err
	}
	rows, err := p.g.Store.Acquire(context.Background(), by, []int{nonce.ShardOf(signer, p.g.Store.Shards())})
	if err == nil && !rows[0].Taken {
		err = errors.New("not acquired")
	}
	return err
}

// finish checks that nothing came that the transcript does not show.
func (p *transcript) finish() {
	if !p.closed {
		p.request("finish", "nonce_unsubscribe", `["0x0"]`)
		wantReason := "not_found"
		if p.g.srv.draining.Load() {
			wantReason = "draining"
		}
		p.wantError("finish", wantReason)
	}
	if len(p.replies)+len(p.batches)+len(p.notifications) > 0 {
		p.Fatalf("also came: %v %v %v", p.replies, p.batches, p.notifications)
	}
}
