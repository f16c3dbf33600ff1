package redisevents

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"noncegate/wire"
)

// channels is how many there are. All nodes must agree on it, and on how signers
// belong to them.
const channels = 64

// channelOf is the channel of a signer.
func channelOf(signer string) int { return int(xxhash.Sum64String(signer) % channels) }

// names are what Redis knows the channels by. On a cluster each may lie in another
// slot.
func names(database string) (all [channels]string) {
	for i := range all {
		all[i] = fmt.Sprintf("noncegate:{%s:%d}:events", database, i)
	}
	return all
}

const (
	// magic begins each message. Another form of message has another one.
	magic = "noncegate1"
	bye   = "bye"
	// messageBytes bounds the events of one message, unless one alone is longer.
	messageBytes = 16 << 10
	// longestMessage is what is read at all.
	longestMessage = 1 << 20
)

// message is some events that one node published one after the other in one
// channel; none, when it only says that it is there.
type message struct {
	origin string // a run of a node
	node   string // its id, for people
	first  uint64 // number of the first event, or of the next one where there is none
	bye    bool   // the last message of this origin
	events [][]byte
}

// append writes the message: a line about it, and one for each event. JSON has no
// line breaks of its own.
func (m *message) append(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %s %s %d", magic, m.origin, m.node, m.first)
	if m.bye {
		dst = append(append(dst, ' '), bye...)
	}
	for _, e := range m.events {
		dst = append(append(dst, '\n'), e...)
	}
	return dst
}

var (
	errMagic  = errors.New("it is none of this program, or of another version")
	errHead   = errors.New("its first line is wrong")
	errEvent  = errors.New("it holds something that is no event")
	errSigner = errors.New("it holds an event of a signer that belongs elsewhere")
)

// parseHead reads the first line of a message. body is what follows it.
func parseHead(payload string) (m message, body string, err error) {
	if len(payload) > longestMessage || !strings.HasPrefix(payload, magic+" ") {
		return m, "", errMagic
	}
	head, body, _ := strings.Cut(payload, "\n")
	words := strings.Split(head, " ")
	if len(words) < 4 || len(words) > 5 || len(words) == 5 && words[4] != bye || len(words[1]) > 64 || len(words[2]) > 256 {
		return m, "", errHead
	}
	m = message{origin: words[1], node: words[2], bye: len(words) == 5}
	if m.first, err = strconv.ParseUint(words[3], 10, 63); err != nil {
		return m, "", errHead
	}
	return m, body, nil
}

// parseEvents reads the events of a message of the channel, and of which signers they
// are.
func parseEvents(channel int, body string) (events [][]byte, signers []string, err error) {
	if body == "" {
		return nil, nil, nil
	}
	events = bytes.Split([]byte(body), []byte{'\n'})
	signers = make([]string, len(events))
	for i, e := range events {
		var told wire.Event
		if len(e) == 0 || e[0] != '{' || e[len(e)-1] != '}' || wire.Unmarshal(e, &told) != nil || told.Type == "" || told.Missed != 0 {
			return nil, nil, errEvent
		}
		if told.Signer == "" || channelOf(told.Signer) != channel {
			return nil, nil, errSigner
		}
		signers[i] = told.Signer
	}
	return events, signers, nil
}
