//go:build unix

package pgtest

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"time"
)

// RoundTrips is how often clients have waited for PostgreSQL: each Sync and each simple query is one.
func (p *Proxy) RoundTrips() int64 { return p.trips.Load() }

// CutStatement is CutReplies for the next execution of a prepared statement whose text contains text. Its preparation is let
// through. Only connections that were made through the proxy since it listens are known well enough.
func (p *Proxy) CutStatement(text string) <-chan struct{} {
	return p.order(&cut{statement: text})
}

// DelayStatement is DelayRequest for the next execution of such a statement.
func (p *Proxy) DelayStatement(text string, late time.Duration) <-chan struct{} {
	return p.order(&cut{statement: text, late: late})
}

// statements follows what a client of PostgreSQL sends, so far as to know which prepared
// statements it executes. What is not PostgreSQL's protocol it gives up on.
type statements struct {
	buf     []byte // a message that has not come whole
	began   bool   // the startup message is over: messages have a type
	foreign bool   // another protocol
	texts   map[string]string
	trips   *atomic.Int64
}

// Codes of messages that come before the startup message, and the version of the protocol.
const (
	requestSSL    = 80877103
	requestGSS    = 80877104
	protocolThree = 3 << 16
	longestStart  = 10_000 // bytes, as the server has it
)

// feed takes what was sent next, and returns the texts of the statements that are bound by it.
func (s *statements) feed(data []byte) (bound []string) {
	if s.foreign {
		return nil
	}
	s.buf = append(s.buf, data...)
	for {
		kind, body, ok := s.next()
		if !ok {
			return bound
		}
		switch kind {
		case 'P': // Parse: name, text
			name, rest, _ := bytes.Cut(body, []byte{0})
			text, _, _ := bytes.Cut(rest, []byte{0})
			if s.texts == nil {
				s.texts = make(map[string]string)
			}
			s.texts[string(name)] = string(text)
		case 'B': // Bind: portal, name
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			bound = append(bound, s.texts[string(name)])
		case 'S', 'Q': // Sync, Query
			s.trips.Add(1)
		}
	}
}

// next takes a whole message from the buffer. The body is valid until the next call of feed.
func (s *statements) next() (kind byte, body []byte, ok bool) {
	head := 0
	if s.began {
		head = 1
	}
	if len(s.buf) < head+4 {
		return 0, nil, false
	}
	size := int(binary.BigEndian.Uint32(s.buf[head:]))
	if !s.began && (size < 8 || size > longestStart) || size < 4 {
		s.foreign, s.buf = true, nil
		return 0, nil, false
	}
	if len(s.buf) < head+size {
		return 0, nil, false
	}
	message := s.buf[:head+size]
	s.buf = s.buf[head+size:]
	if s.began {
		return message[0], message[5:], true
	}
	switch code := binary.BigEndian.Uint32(message[4:]); code {
	case requestSSL, requestGSS: // and perhaps another one follows
	default:
		s.began, s.foreign = true, code != protocolThree
	}
	return 0, nil, !s.foreign
}
