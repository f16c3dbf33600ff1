package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/gorilla/websocket"
)

const (
	dialTimeout   = 10 * time.Second
	replyBytes    = 256     // roughly one reply, to size the read buffer
	maxReplyBytes = 1 << 20 // a longer one is not an answer to what we send
)

// client is one connection. It belongs to the goroutine of loop; only Close of
// conn may come from elsewhere.
type client struct {
	conn     net.Conn
	burst    burst
	signers  []byte // shared table
	rng      *rand.Rand
	interval time.Duration // between bursts, 0: none
	phase    time.Duration // when the first burst is due after the start

	in  []byte // what was read
	end int    // in[:end] was not looked at yet
}

// dialClient opens the i-th connection of a load. gorilla makes the handshake;
// after it the bare connection is ours.
func dialClient(ctx context.Context, l load, table []byte, i int) (*client, error) {
	d := websocket.Dialer{HandshakeTimeout: dialTimeout, ReadBufferSize: 1024, WriteBufferSize: 1024}
	ws, resp, err := d.DialContext(ctx, l.url, nil)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		return nil, err
	}
	interval := l.interval()
	return &client{
		conn:     ws.NetConn(),
		burst:    newBurst(l.inflight),
		signers:  table,
		rng:      rand.New(rand.NewPCG(uint64(l.signerBase), uint64(i))),
		interval: interval,
		phase:    time.Duration(float64(interval) * float64(i) / float64(l.connections)),
		in:       make([]byte, min(max(l.inflight*replyBytes, 1<<10), 64<<10)),
	}, nil
}

// loop sends bursts until quit is closed, and returns nil then; an error is the
// end of the connection.
func (c *client) loop(s *shard, start time.Time, quit <-chan struct{}) error {
	defer c.conn.Close()
	due := start.Add(c.phase)
	for c.sleepUntil(due, quit) {
		if c.interval == 0 {
			due = time.Now()
		}
		if err := c.exchange(s, due); err != nil {
			return err
		}
		due = due.Add(c.interval)
	}
	// The normal closure; the server may be gone already.
	c.conn.Write(appendClientFrame(nil, finClose, binary.BigEndian.AppendUint16(nil, websocket.CloseNormalClosure)))
	return nil
}

// sleepUntil returns true at the time due, at once without a rate, and false
// when quit is closed.
func (c *client) sleepUntil(due time.Time, quit <-chan struct{}) bool {
	if c.interval > 0 {
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-quit:
		}
	}
	select {
	case <-quit:
		return false
	default:
		return true
	}
}

// exchange sends one burst and waits for its replies, which are as old as their
// burst was due.
func (c *client) exchange(s *shard, due time.Time) error {
	n := len(c.burst.digits)
	accounts := len(c.signers) / signerDigits
	for i := range n {
		at := c.rng.IntN(accounts) * signerDigits
		c.burst.setSigner(i, c.signers[at:at+signerDigits])
	}
	if _, err := c.conn.Write(c.burst.bytes); err != nil {
		return err
	}
	for n > 0 {
		replies, err := c.receive(s, due)
		if err != nil {
			return err
		}
		n -= replies
	}
	return nil
}

// receive reads once and counts the replies that are whole.
func (c *client) receive(s *shard, due time.Time) (int, error) {
	if c.end == len(c.in) {
		if len(c.in) >= maxReplyBytes {
			return 0, fmt.Errorf("a frame of more than %d bytes", maxReplyBytes)
		}
		c.in = append(c.in, make([]byte, len(c.in))...)
	}
	n, err := c.conn.Read(c.in[c.end:])
	if err != nil {
		return 0, err
	}
	c.end += n
	var count, refused, used int
	for {
		op, payload, size := serverFrame(c.in[used:c.end])
		if size == 0 {
			break
		}
		used += size
		if op != finText {
			if err := c.control(op, payload); err != nil {
				return 0, err
			}
			continue
		}
		count++
		if reason := refusal(payload); reason != "" {
			refused++
			s.refuse(reason)
		}
	}
	c.end = copy(c.in, c.in[used:c.end])
	s.acknowledge(time.Since(due), count-refused)
	return count, nil
}

// control answers a ping; a close frame, or anything a gateway does not send, is
// an error.
func (c *client) control(op byte, payload []byte) error {
	switch op {
	case finPing:
		_, err := c.conn.Write(appendClientFrame(nil, finPong, payload))
		return err
	case finPong:
		return nil
	case finClose:
		if len(payload) < 2 {
			return errors.New("closed by the server")
		}
		return fmt.Errorf("closed by the server: %d %s", binary.BigEndian.Uint16(payload), payload[2:])
	}
	return fmt.Errorf("unexpected frame %#x", op)
}
