package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"

	"noncegate/test/lab/history"
	"noncegate/wire"
)

const (
	dialTimeout = 10 * time.Second
	dialers     = 64 // connections being opened at a time
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dial opens a WebSocket. Its error names the URL. netDial opens the connection beneath; nil: as usual.
func (a Access) dial(ctx context.Context, url string, netDial dialFunc) (*websocket.Conn, error) {
	d := websocket.Dialer{
		HandshakeTimeout: dialTimeout, ReadBufferSize: 4096, WriteBufferSize: 1024, TLSClientConfig: a.TLS, NetDialContext: netDial,
	}
	ws, resp, err := d.DialContext(ctx, url, a.Header)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return ws, nil
}

// openAll opens n connections, or none when one cannot be opened or ctx ends.
func openAll[T io.Closer](ctx context.Context, n int, open func(ctx context.Context, i int) (T, error)) ([]T, error) {
	all, opened := make([]T, n), make([]bool, n)
	opening, openCtx := errgroup.WithContext(ctx)
	opening.SetLimit(dialers)
	for i := range all {
		opening.Go(func() (err error) {
			if openCtx.Err() != nil {
				return context.Cause(openCtx)
			}
			all[i], err = open(openCtx, i)
			opened[i] = err == nil
			return err
		})
	}
	err := opening.Wait()
	if err == nil {
		return all, nil
	}
	for i, c := range all {
		if opened[i] {
			c.Close()
		}
	}
	return nil, err
}

// OpenIdle opens the connections of a load, asks for one nonce on each, and leaves them alone: no ping is answered. release closes them.
func (l Load) OpenIdle(ctx context.Context) (release func(), err error) {
	all, err := openAll(ctx, l.Connections, func(ctx context.Context, i int) (*websocket.Conn, error) {
		ws, err := l.Access.dial(ctx, l.URLs[i%len(l.URLs)], nil)
		if err != nil {
			return nil, err
		}
		if err := firstRequest(ws, allocation(l.Signers.Name(i%l.Signers.Count))); err != nil {
			ws.Close()
			return nil, fmt.Errorf("ask for a nonce: %w", err)
		}
		return ws, nil
	})
	return func() {
		for _, ws := range all {
			ws.Close()
		}
	}, err
}

// firstRequest makes the first request of a connection, and returns an error when that is the answer.
func firstRequest(ws *websocket.Conn, text []byte) error {
	ws.SetReadDeadline(time.Now().Add(dialTimeout))
	defer ws.SetReadDeadline(time.Time{})
	if err := ws.WriteMessage(websocket.TextMessage, text); err != nil {
		return err
	}
	_, payload, err := ws.ReadMessage()
	if err != nil {
		return err
	}
	rep, err := parseReply(payload)
	if err == nil && rep.failed {
		err = errors.New(rep.refusal())
	}
	return err
}

// corked is a connection that keeps what is written while it is on, until flush. Its writers take turns.
type corked struct {
	net.Conn
	on   bool
	kept []byte
}

func (c *corked) Write(p []byte) (int, error) {
	if !c.on {
		return c.Conn.Write(p)
	}
	c.kept = append(c.kept, p...)
	return len(p), nil
}

// SetWriteDeadline does nothing: gorilla sets one, mostly none, before each write.
func (c *corked) SetWriteDeadline(time.Time) error { return nil }

func (c *corked) flush() error {
	c.on = false
	_, err := c.Conn.Write(c.kept)
	c.kept = c.kept[:0]
	return err
}

// goodbye ends a connection in an orderly way; the other side may be gone.
func goodbye(ws *websocket.Conn) {
	ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(lastWords))
	ws.Close()
}

// closedBy is the close frame by which the other side ended a connection, nil when it was another end.
func closedBy(err error) *websocket.CloseError {
	if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code != websocket.CloseAbnormalClosure {
		return closed
	}
	return nil
}

var addresses = regexp.MustCompile(` tcp \S+(: read|: write)?:`)

// reason is why a connection ended, without the addresses, so that equal reasons can be counted together.
func reason(err error) string {
	if closed := closedBy(err); closed != nil {
		return strings.TrimSpace(fmt.Sprintf("closed by the server: %d %s", closed.Code, closed.Text))
	}
	if _, ok := errors.AsType[*websocket.CloseError](err); ok {
		return "closed by the server without a close frame"
	}
	return addresses.ReplaceAllString(err.Error(), ":")
}

// firstID is the lowest id of a request; with six digits all have the same length.
const firstID = 100_000

// maxRequestBytes bounds one request on the wire, a markUsed with the longest numbers.
const maxRequestBytes = 384

// nonceOf is a hand-out of a nonce of an account.
type nonceOf struct{ account, nonce, attempt int64 }

// request is one that was sent; its place in the list of its connection is its id. What it is handed out stands where what a mark is of
// does.
type request struct {
	nonceOf
	open   bool // not answered yet
	known  bool // the nonce, of a mark
	method Method
	call   *history.Call // as it is kept; nil: it is not
}

// hold is a nonce that the connection was handed out and has not marked.
type hold struct {
	nonceOf
	until time.Duration // by the clock of the run; later it may be another client's
}

// The texts of a request, around what changes.
const (
	textID       = `{"jsonrpc":"2.0","id":`
	signerDigits = 16 // the last ones, which say the number of the account
)

var (
	signerPrefix = Signer(0)[:len(Signer(0))-signerDigits]
	// wireNames are the methods as the protocol calls them.
	wireNames = [methodCount]string{wire.MethodAllocate, wire.MethodMarkUsed, wire.MethodMarkRecyclable, wire.MethodStatus}
	// heads are the texts between the id and the digits of the signer.
	heads = func() (heads [methodCount]string) {
		for m, name := range wireNames {
			heads[m] = `,"method":"` + name + `","params":{"signer":"` + signerPrefix
		}
		return heads
	}()
)

// appendRequest appends the text of r. connection makes the hashes of different connections differ.
func appendRequest(dst []byte, id int, r *request, connection int64) []byte {
	dst = strconv.AppendInt(append(dst, textID...), int64(id), 10)
	dst = append(appendHex(append(dst, heads[r.method]...), r.account), '"')
	if r.method == MarkUsed || r.method == MarkRecyclable {
		dst = strconv.AppendInt(append(dst, `,"nonce":`...), r.nonce, 10)
		dst = strconv.AppendInt(append(dst, `,"attempt":`...), r.attempt, 10)
	}
	if r.method == MarkUsed {
		dst = append(dst, `,"txHash":"0x`...)
		for _, part := range [...]int64{r.account, r.nonce, r.attempt, connection} {
			dst = appendHex(dst, part)
		}
		dst = append(dst, '"')
	}
	return append(dst, "}}"...)
}

// txHash is the hash under which a load marks a nonce used: no two marks of two connections have the same.
func txHash(of nonceOf, connection int64) string {
	return fmt.Sprintf("0x%016x%016x%016x%016x", of.account, of.nonce, of.attempt, connection)
}

// allocation is the text of an allocation that is asked for by itself.
func allocation(signer string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"signer":%q}}`, firstID, wire.MethodAllocate, signer)
}

// appendHex appends a number in all its digits.
func appendHex(dst []byte, n int64) []byte {
	dst = append(dst, "0000000000000000"...)
	for at := len(dst) - 1; n != 0; at-- {
		dst[at] = "0123456789abcdef"[n&15]
		n >>= 4
	}
	return dst
}

// reply is an answer as far as it was looked at.
type reply struct {
	id     int
	failed bool
	body   []byte // what follows the word result or error and its colon, up to the end
}

// The texts of a reply that the gateway writes before anything that changes. Another spelling is an error.
var (
	replyID     = []byte(textID)
	replyResult = []byte(`,"result":`)
	replyError  = []byte(`,"error":`)
	errNoReply  = errors.New("a message that is no answer to a request of ours")
)

// parseReply reads a reply's id, and whether it is a result.
func parseReply(payload []byte) (reply, error) {
	rest, ours := bytes.CutPrefix(payload, replyID)
	id, n := digits(rest)
	body, ok := bytes.CutPrefix(rest[n:], replyResult)
	failed := false
	if !ok {
		body, failed = bytes.CutPrefix(rest[n:], replyError)
	}
	if !ours || n == 0 || !ok && !failed {
		return reply{}, errNoReply
	}
	return reply{id: id, failed: failed, body: body}, nil
}

// digits reads the whole number at the beginning of text, and how many digits it has; none when it is not one of ours.
func digits(text []byte) (value, n int) {
	for n < len(text) && n < 18 && text[n] >= '0' && text[n] <= '9' {
		value = value*10 + int(text[n]-'0')
		n++
	}
	return value, n
}

// field is the whole number that a member has in a JSON object whose strings hold nothing that looks like one.
func field(object []byte, name string) (int64, bool) {
	_, after, _ := bytes.Cut(object, []byte(name))
	value, n := digits(after)
	return int64(value), n > 0
}

func (r *reply) handedOut(of *nonceOf) (holdMs int64, err error) {
	nonce, ok1 := field(r.body, `"nonce":`)
	attempt, ok2 := field(r.body, `"attempt":`)
	holdMs, ok3 := field(r.body, `"holdMs":`)
	if !ok1 || !ok2 || !ok3 {
		return 0, fmt.Errorf("the result of an allocate that cannot be read: %.200s", r.body)
	}
	of.nonce, of.attempt = nonce, attempt
	return holdMs, nil
}

func (r *reply) refusal() string {
	_, after, _ := bytes.Cut(r.body, []byte(`"reason":"`))
	word, _, closed := bytes.Cut(after, []byte{'"'})
	if !closed {
		return "error without reason"
	}
	return string(word)
}
