package cluster

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/nonce"
)

// A handshake is four messages: the node that dials says hello, the other challenges, the first
// proves itself, and only then the other does. Each proof is an HMAC with the secret, or where there
// is none with an empty key, over the hello, the challenge and the database, so over both random
// numbers, both ids and the number of the link; none is of use a second time.

// randomBytes is the length of a random number.
const randomBytes = 32

// statusVersion refuses a link of another version.
const statusVersion = http.StatusUpgradeRequired

// Reasons for which a node is refused, as Config.Refused is told.
const (
	RefusedSecret    = "node_secret"
	RefusedMisplaced = "misdirected"
	RefusedFull      = "full"
	RefusedLeaving   = "draining"
)

// Sentences for who runs the node that is refused.
const (
	saySecret   = "the node secret is missing or not the one of this node"
	sayDatabase = "this gateway keeps its nonces in another database: the --advertise-url of the node that was meant leads out of its cluster"
	sayFull     = "this node takes no links now"
	sayNode     = "this is not the node that was meant: its --advertise-url leads to another one, or its id has changed"
)

// proof is the HMAC of one side.
func proof(secret string, side byte, hello, challenge []byte, database string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	for _, part := range [][]byte{{side}, hello, challenge, []byte(database)} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

func appendRandom(b []byte) []byte {
	var random [randomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return append(b, random[:]...)
}

// say sends one message of a handshake.
func say(ws *websocket.Conn, message []byte) error {
	return ws.WriteMessage(websocket.BinaryMessage, message)
}

// heed reads the next message of a handshake, which must be of a kind, or is a refusal.
func heed(ws *websocket.Conn, want byte) (message []byte, f *frame, err error) {
	kind, message, err := ws.ReadMessage()
	if err != nil {
		return nil, nil, err
	}
	f = &frame{b: message}
	switch tag := f.tag(); {
	case kind != websocket.BinaryMessage, f.err != nil:
		return nil, nil, nonsense("no handshake of nodes")
	case tag == itRefusal:
		e := &refusal{status: int(f.number()), sentence: clip(f.text())}
		if f.err != nil {
			return nil, nil, f.err
		}
		return nil, nil, e
	case tag != want:
		return nil, nil, nonsense("%q in a handshake, want %q", tag, want)
	}
	return message, f, nil
}

// greet is the handshake of the node that dials.
func (p *peer) greet(ws *websocket.Conn, deadline time.Time) error {
	ws.SetReadDeadline(deadline)
	ws.SetWriteDeadline(deadline)
	ws.SetReadLimit(maxFrame)
	defer ws.SetReadDeadline(time.Time{})
	hello := appendRandom(binary.AppendUvarint([]byte{itHello}, nonce.CodecVersion))
	hello = binary.AppendVarint(appendText(appendText(hello, p.r.self), p.id), p.r.links.Add(1))
	if err := say(ws, hello); err != nil {
		return err
	}
	challenge, _, err := heed(ws, itChallenge)
	if err != nil {
		return err
	}
	if len(challenge) != 1+randomBytes {
		return nonsense("a challenge of %d bytes", len(challenge))
	}
	secret, database := p.r.cfg.Secret, p.r.cfg.database()
	if err := say(ws, append(appendText([]byte{itProof}, database), proof(secret, itProof, hello, challenge, database)...)); err != nil {
		return err
	}
	welcome, _, err := heed(ws, itWelcome)
	if err == nil && !hmac.Equal(welcome[1:], proof(secret, itWelcome, hello, challenge, database)) {
		err = &refusal{status: http.StatusForbidden, sentence: "it has not proved that it knows the secret"}
	}
	return err
}

// greeted is what the node that dialled has said and proved.
type greeted struct {
	node, to string
	number   int64
	welcome  []byte // which it is still to be told
}

// receive is the handshake of the node that was dialled, up to the welcome. A *refusal is said to the other.
func (r *Router) receive(ws *websocket.Conn) (from greeted, err error) {
	deadline := time.Now().Add(r.cfg.dialTimeout())
	ws.SetReadDeadline(deadline)
	ws.SetWriteDeadline(deadline)
	ws.SetReadLimit(4 << 10)
	defer ws.SetReadDeadline(time.Time{})
	hello, f, err := heed(ws, itHello)
	if err != nil {
		return from, err
	}
	if v := f.number(); v != nonce.CodecVersion {
		why := fmt.Sprintf("links of this node have version %d, and not %d", nonce.CodecVersion, v)
		return from, &refusal{status: statusVersion, sentence: why}
	}
	f.take(randomBytes)
	from = greeted{node: f.text(), to: f.text()}
	var size int
	if from.number, size = binary.Varint(f.b); size <= 0 || size != len(f.b) {
		f.fail(errShort)
	}
	if f.err != nil {
		return from, f.err
	}
	challenge := appendRandom([]byte{itChallenge})
	if err := say(ws, challenge); err != nil {
		return from, err
	}
	_, f, err = heed(ws, itProof)
	if err != nil {
		return from, err
	}
	database := f.text()
	switch { // who does not know the secret learns nothing else
	case f.err != nil:
		return from, f.err
	case !hmac.Equal(f.b, proof(r.cfg.Secret, itProof, hello, challenge, database)):
		return from, &refusal{status: http.StatusForbidden, reason: RefusedSecret, sentence: saySecret}
	case database != r.cfg.database():
		return from, &refusal{status: http.StatusMisdirectedRequest, reason: RefusedMisplaced, sentence: sayDatabase}
	case from.node == "" || len(from.node) > nonce.MaxKeyBytes || from.node == r.self || from.to != r.self:
		return from, &refusal{status: http.StatusMisdirectedRequest, reason: RefusedMisplaced, sentence: sayNode}
	}
	from.welcome = append([]byte{itWelcome}, proof(r.cfg.Secret, itWelcome, hello, challenge, database)...)
	return from, nil
}
