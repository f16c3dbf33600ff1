package ws

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"noncegate/test/lab/inprocess"

	"github.com/gorilla/websocket"
)

// TestTranscripts plays testdata/*.txt, each on a connection and a gateway of its
// own. testdata/README.md describes the format.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	if len(files) < 94 {
		t.Fatalf("found %d transcripts, there were 94", len(files))
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
	testing.TB
	*world
	clients map[string]*client // by speaker
	names   map[string]string  // what placeholders with a name stood for
}

// play plays a text, once for each way of which its header says that it is played in all.
func play(t *testing.T, text string) {
	ways := variants(text)
	if len(ways) == 1 {
		playOnce(t, text, ways[0])
		return
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) { playOnce(t, text, way) })
	}
}

func playOnce(t *testing.T, text string, way variant) {
	p := &transcript{TB: t, world: newWorld(t, way), clients: map[string]*client{}, names: map[string]string{}}
	for n, line := range strings.Split(text, "\n") {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			t.Fatalf("line %d: %s\n%v", n+1, line, err)
		}
	}
	p.finish()
}

func (p *transcript) line(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	speaker := ""
	if second, after, _ := strings.Cut(rest, " "); slices.Contains(arrows, second) {
		speaker, verb, rest = verb, second, after
	}
	switch verb {
	case "", "#":
		return nil
	case "-->":
		return p.client(speaker).Conn.WriteMessage(websocket.TextMessage, []byte(p.fill(rest)))
	case "<--":
		return p.expect(p.client(speaker), rest)
	case "<~~":
		return p.expectAmong(p.client(speaker), rest)
	case "==":
		return p.do(strings.Fields(rest))
	}
	return errors.New("a line begins with an arrow, a name and an arrow, ==, or #")
}

// arrows are what stands before what is sent, what comes next, and what comes at some time.
var arrows = []string{"-->", "<--", "<~~"}

// client is the connection of a speaker, which is opened when he first says something.
func (p *transcript) client(speaker string) *client {
	if p.clients[speaker] == nil {
		name, _, _ := strings.Cut(speaker, "/")
		p.clients[speaker] = p.gateway().dialWith(inprocess.As(name))
	}
	return p.clients[speaker]
}

// fill puts what names stand for into a line to be sent.
func (p *transcript) fill(line string) string {
	for name, value := range p.names {
		line = strings.ReplaceAll(line, "<"+name+">", value)
	}
	return line
}

// expect compares the next frame of the wanted kind.
func (p *transcript) expect(c *client, line string) error {
	if closing, ok := strings.CutPrefix(line, "close "); ok {
		return p.expectClose(c, closing)
	}
	want, err := decode(line)
	if err != nil {
		return err
	}
	var got any
	switch w := want.(type) {
	case []any:
		got = c.Batch()
	case map[string]any:
		if _, ok := w["method"]; ok {
			got = c.Notification()
		} else {
			got = c.Reply()
		}
	}
	return p.match(want, got)
}

// expectAmong compares the reply to the same request, however many come before it.
func (p *transcript) expectAmong(c *client, line string) error {
	decoded, err := decode(line)
	want, ok := decoded.(map[string]any)
	if err != nil || !ok {
		return fmt.Errorf("it must be a reply: %w", err)
	}
	for {
		i := slices.IndexFunc(c.Replies, func(r map[string]any) bool { return r["id"] == want["id"] })
		if i >= 0 {
			got := c.Replies[i]
			c.Replies = slices.Delete(c.Replies, i, i+1)
			return p.match(want, got)
		}
		must(p, c.Read())
	}
}

// expectClose waits for the end of a connection, with a code, or with a code and a text.
func (p *transcript) expectClose(c *client, want string) error {
	code, text := c.Closed()
	if got := strconv.Itoa(code); want != got && want != got+" "+text {
		return fmt.Errorf("closed with %s %s", got, text)
	}
	c.ended = true
	return c.Conn.Close() // a client that is still there is waited for
}

func decode(line string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	return v, d.Decode(&v)
}

// show is a value as JSON, its members in the order of their names.
func show(v any) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(text.String())
}

func atoi(digits string) int { n, _ := strconv.Atoi(digits); return n }

// A placeholder is <shape>, <shape name> or <least-greatest>.
var placeholder = regexp.MustCompile(`"<([a-z]+|(\d+)-(\d+))(?: ([a-z]+))?>"`)

// shapes are what a placeholder can stand for.
var shapes = map[string]string{
	"time":   `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`,
	"number": `"?-?\d+(?:\.\d+)?"?`,
	"id":     `"0x[0-9a-f]{32}"`,
	"any":    `"(?:[^"\\]|\\.)*"|[^",{}]+|\{.*\}|\[.*\]`,
}

// match compares two decoded values; a string of the wanted one may be a placeholder. A name
// means the same everywhere in a transcript.
func (p *transcript) match(want, got any) error {
	wanted, came := regexp.QuoteMeta(show(want)), show(got)
	pattern := placeholder.ReplaceAllStringFunc(wanted, func(one string) string {
		shape := placeholder.FindStringSubmatch(one)[1]
		return "(" + cmp.Or(shapes[shape], `-?\d+`) + ")"
	})
	values := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(came)
	if values == nil {
		return fmt.Errorf("it is %s", came)
	}
	for i, one := range placeholder.FindAllStringSubmatch(wanted, -1) {
		value, least, greatest, name := strings.Trim(values[i+1], `"`), one[2], one[3], one[4]
		if n := atoi(value); least != "" && (n < atoi(least) || n > atoi(greatest)) {
			return fmt.Errorf("%s is %s, in %s", one[0], value, came)
		}
		if name == "" {
			continue
		}
		if before, seen := p.names[name]; seen && before != value {
			return fmt.Errorf("%s is %s, but was %s", one[0], value, before)
		}
		p.names[name] = value
	}
	return nil
}

// finish checks that nothing came that the transcript does not show.
func (p *transcript) finish() {
	for speaker, c := range p.clients {
		if !c.ended {
			if r := c.Call("finish", "nonce_unsubscribe", `["0x0"]`); r["id"] != "finish" {
				c.Replies = append(c.Replies, r)
			}
		}
		if len(c.Replies)+len(c.Batches)+len(c.Notifications) > 0 {
			p.Errorf("also came, to %q: %v %v %v", speaker, c.Replies, c.Batches, c.Notifications)
		}
	}
	if p.auditSaid != nil {
		p.finishAudit()
	}
}
