package backpressure

import (
	"errors"
	"fmt"
	"time"
)

// DropReason says why a notification was not queued. The values are the labels
// of noncegate_dropped_total.
type DropReason string

// The reasons for dropping a notification.
const (
	DropNone     DropReason = ""
	DropSlow     DropReason = "slow"        // the client is above its high mark
	DropNoRoom   DropReason = "no_room"     // the rest of the cap is promised to replies or waits to be encoded
	DropMessages DropReason = "messages"    // too many messages are waiting
	DropEncode   DropReason = "encode_full" // no slot in the encode pool
)

// KickReason says why a client was disconnected. The values are the labels of
// noncegate_kicked_total.
type KickReason string

// The reasons for a kick.
const (
	KickNone         KickReason = ""
	KickHardCap      KickReason = "hard_cap"      // more bytes than Marks.Max
	KickTooOld       KickReason = "too_old"       // the oldest message waited longer than Marks.MaxAge
	KickSlow         KickReason = "slow"          // above the high mark for Marks.SlowAfter
	KickWriteTimeout KickReason = "write_timeout" // one write did not end in time
)

// Marks are the watermarks of an outbound queue and the policy for a client that
// exceeds them. Max and MaxAge are hard caps and hold under every policy.
type Marks struct {
	// High and Low, bytes: a queue is slow from when it holds more than High
	// until it holds no more than Low. The gap keeps it from flapping.
	High, Low int64
	// Max, bytes: what one connection may hold in all, promised room included.
	Max int64
	// MaxAge bounds how long an encoded message may wait for its write to end;
	// it is looked at when something happens to the queue, and the deadline of
	// the running write bounds how late that is. 0: no bound.
	MaxAge time.Duration
	// SlowAfter is how long a queue may stay slow when Kick is set. Longer
	// forgives bad networks, and keeps more memory for more clients.
	SlowAfter time.Duration

	Pause bool // slow: stop reading the client's requests
	Drop  bool // slow: drop its notifications
	Kick  bool // slow for SlowAfter: disconnect
	Off   bool // no client is ever slow; only the hard caps are left
}

// Validate names the settings that contradict each other.
func (m *Marks) Validate() error {
	switch {
	case m.Low < 0 || m.Low > m.High:
		return fmt.Errorf("low mark of %d bytes must be between 0 and the high mark of %d", m.Low, m.High)
	case m.High >= m.Max:
		return fmt.Errorf("high mark of %d bytes must be below the cap of %d", m.High, m.Max)
	case m.MaxAge < 0:
		return fmt.Errorf("negative age bound %v", m.MaxAge)
	case m.Kick && !m.Off && m.SlowAfter <= 0:
		return errors.New("policy kick needs a time after which to kick")
	}
	return nil
}

// Notification decides about a notification of n bytes. unwritten bytes wait for
// the client to read, ahead ones are promised to replies or wait to be encoded,
// which is not the client's doing; drop is what the level's last Decision said.
// Both reasons empty: take it.
func (m *Marks) Notification(drop bool, unwritten, ahead, n int64) (DropReason, KickReason) {
	switch {
	case drop:
		return DropSlow, KickNone
	case unwritten+n > m.Max:
		return DropNone, KickHardCap
	case unwritten+ahead+n > m.Max:
		return DropNoRoom, KickNone
	}
	return DropNone, KickNone
}

// Decision is what to do with a client now.
type Decision struct {
	Pause bool       // do not read from it; false: resume
	Drop  bool       // drop its notifications
	Kick  KickReason // not empty: disconnect it
	// CheckIn, when positive, is the time after which Update must be called
	// again even if nothing happens, because a kick may then be due.
	CheckIn time.Duration
}

// Level is the state of one connection against its marks. The zero Level is not
// slow. Not safe for concurrent use: it belongs to the queue it judges.
type Level struct {
	slow  bool
	since time.Duration // of the caller's clock; meaningful while slow
}

// Update takes the bytes that wait to be written, the age of the oldest of them
// (0 when nothing waits) and a reading of any one monotonic clock, and decides.
func (l *Level) Update(m *Marks, bytes int64, age, now time.Duration) Decision {
	switch {
	case bytes > m.Max:
		return Decision{Kick: KickHardCap}
	case m.MaxAge > 0 && age > m.MaxAge:
		return Decision{Kick: KickTooOld}
	case l.slow && bytes <= m.Low:
		l.slow = false
	case !l.slow && bytes > m.High && !m.Off:
		l.slow, l.since = true, now
	}
	if !l.slow {
		return Decision{}
	}
	d := Decision{Pause: m.Pause, Drop: m.Drop}
	if m.Kick {
		if d.CheckIn = l.since + m.SlowAfter - now; d.CheckIn <= 0 {
			return Decision{Kick: KickSlow}
		}
	}
	return d
}
