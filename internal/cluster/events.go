package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/wire"
)

// EventSink takes the events that other nodes committed. Its methods are called
// from the readers of the links, and must not block.
type EventSink interface {
	// Remote hands over one event as JSON, without the number missed, which is
	// apart. The bytes are the sink's.
	Remote(signer string, event []byte, missed int64)
	// Lost says that events of some node may have been missed: its link broke,
	// could not be opened, or was opened after the node began to commit.
	Lost()
}

const (
	// maxSigners bounds what a link subscribes to by name. Who wants more gets
	// everything and leaves the choice to the hub of this node.
	maxSigners = 1024
	// maxInterestBytes keeps the request below the longest message that a node
	// takes, which is 64 KiB unless it was told otherwise.
	maxInterestBytes = 48 << 10
	// maxSeen bounds the events remembered while one subscription takes the
	// place of another, which is about one round trip.
	maxSeen = 4096
	// subscribeAgain is the pause after a subscription was refused.
	subscribeAgain = 500 * time.Millisecond
)

// interest is what the clients of this node want. It is never changed.
type interest struct {
	seq     uint64 // later ones are higher
	all     bool
	signers []string // sorted
}

func (i *interest) empty() bool { return !i.all && len(i.signers) == 0 }

// params are those of nonce_subscribe.
func (i *interest) params() any { return &wire.SubscribeParams{Signers: i.signers} }

// interests is the present interest, and who waits for it to be known elsewhere.
type interests struct {
	present atomic.Pointer[interest]

	changing sync.Mutex // held while the interest is read and set

	mu    sync.Mutex // guards moved
	moved chan struct{}
}

func (in *interests) init() {
	in.present.Store(new(interest))
	in.moved = make(chan struct{})
}

func (in *interests) now() *interest { return in.present.Load() }

// progress wakes those who wait.
func (in *interests) progress() {
	in.mu.Lock()
	defer in.mu.Unlock()
	close(in.moved)
	in.moved = make(chan struct{})
}

// wait returns a channel that is closed at the next progress.
func (in *interests) wait() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.moved
}

// InterestChanged makes the links follow what clients of this node want: every
// event, or those of some signers, or none. It is called after each change; read
// says what is wanted now. Calls from several goroutines end with the latest.
func (r *Router) InterestChanged(read func() (all bool, signers []string)) {
	r.interests.changing.Lock()
	all, signers := read()
	next := &interest{all: all}
	if !all {
		next.signers = slices.Clone(signers)
		slices.Sort(next.signers)
		next.signers = slices.Compact(next.signers)
		bytes := 0
		for _, s := range next.signers {
			bytes += 2*len(s) + len(`"",`) // as if each character had to be escaped
		}
		if len(next.signers) > maxSigners || bytes > maxInterestBytes {
			next.all, next.signers = true, nil
		}
	}
	old := r.interests.now()
	same := old.all == next.all && slices.Equal(old.signers, next.signers)
	if !same {
		next.seq = old.seq + 1
		r.interests.present.Store(next)
	}
	r.interests.changing.Unlock()
	if same {
		return
	}
	for _, p := range r.table.Load().peers {
		p.nudge()
	}
}

// Await waits until every node that can be reached has taken up the present
// interest, so that no event of a subscription is missed that a client was told is
// there. When ctx ends before, or a node cannot be reached, the EventSink is told
// Lost as soon as the node has taken it up.
func (r *Router) Await(ctx context.Context) {
	seq := r.interests.now().seq
	for {
		moved := r.interests.wait()
		if r.interests.now().empty() || r.awaited(seq) {
			break
		}
		select {
		case <-moved:
			continue
		case <-ctx.Done():
		case <-r.ctx.Done():
		}
		break
	}
	for _, p := range r.table.Load().peers {
		p.mu.Lock()
		if p.subs.have < seq && p.node.Live {
			p.subs.gap = max(p.subs.gap, gapOpen)
		}
		p.mu.Unlock()
	}
}

// awaited reports whether all who can be reached know the interest.
func (r *Router) awaited(seq uint64) bool {
	for _, p := range r.table.Load().peers {
		p.mu.Lock()
		waits := p.subs.have < seq && p.node.Live && !p.suspect && !p.leaving && !p.closed
		p.mu.Unlock()
		if waits {
			return false
		}
	}
	return true
}

// controlBit marks the ids of a link's own requests.
const controlBit = 1 << 52

// gap says whether events of a node may be missing, and what the sink was told of that.
type gap uint8

const (
	noGap   gap = iota
	gapOpen     // the sink is told once the node is subscribed to
	gapTold     // and was told already that events may be missing from then on
)

// subscribed is what a link has subscribed to at its node: one subscription, and
// while another takes its place, for a moment two. Guarded by peer.mu.
type subscribed struct {
	gap gap

	lastID    uint64
	have      uint64    // seq of the interest that is taken up
	id        string    // subscription for it; "": none
	asking    uint64    // id of the subscribe under way; 0: none
	asked     *interest // what that one is for
	notBefore time.Time // when to ask again after a refusal

	old    string             // subscription that had its place before
	ending uint64             // id of the unsubscribe under way; 0: none
	seen   map[event]struct{} // while one is to take another's place: what either has brought
}

// event is what tells an event from all others.
type event struct {
	Type    string `json:"type"`
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Version int64  `json:"version"`
	At      string `json:"at"` // what a chain says of one nonce, it can say again later
}

// due appends the requests that are to be made now. The new subscription comes
// first; the old one ends when the new one is there.
func (s *subscribed) due(want *interest, now time.Time, to []control) []control {
	if s.asking == 0 && s.old == "" && s.have != want.seq && !now.Before(s.notBefore) {
		if want.empty() {
			s.have, s.gap = want.seq, noGap
			s.old, s.id = s.id, ""
		} else {
			s.asking, s.asked = s.nextID(), want
			if s.id != "" { // its answer may come between the two copies of one event
				s.seen = make(map[event]struct{})
			}
			to = append(to, control{id: s.asking, method: wire.MethodSubscribe, params: want.params()})
		}
	}
	if s.old != "" && s.ending == 0 {
		s.ending = s.nextID()
		to = append(to, control{id: s.ending, method: wire.MethodUnsubscribe, params: []string{s.old}})
	}
	return to
}

func (s *subscribed) nextID() uint64 {
	s.lastID++
	return s.lastID | controlBit
}

// lostLink forgets what ended with the link, or follows a dial that failed. missed:
// events may be lost from now on. clean: the node closed it after it had sent
// everything. wanted: somebody wants events, and the node may commit some.
func (s *subscribed) lostLink(clean, wanted bool) (missed bool) {
	missed = (s.gap == gapOpen || s.gap == noGap && s.id != "" && !clean) && wanted
	next := s.gap
	switch {
	case missed:
		next = gapTold
	case s.id != "": // also a node that left cleanly may start again and commit before it is heard
		next = max(next, gapOpen)
	}
	*s = subscribed{gap: next, lastID: s.lastID}
	return missed
}

// controlAnswered follows the answer to a request of the link's own.
func (l *link) controlAnswered(id uint64, f *frame) error {
	p := l.peer
	p.mu.Lock()
	s := &p.subs
	var err, refusal error
	lost := false
	switch {
	case id == s.asking:
		lost, refusal, err = s.taken(f)
	case id == s.ending:
		s.old, s.ending, s.seen = "", 0, nil // a refusal says that it is gone as well
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		return err
	case refusal != nil:
		p.r.log.Warn("node refused the subscription to its events", "node", p.id, "error", refusal)
	}
	if lost {
		p.r.events.Lost()
	}
	p.nudge()
	p.r.interests.progress()
	return nil
}

// taken follows the answer to a subscribe. From here on both subscriptions may
// bring events, each of them possibly both, until the old one has ended: what was
// committed before the new one was live may still come by the old one only.
func (s *subscribed) taken(f *frame) (lost bool, refusal, err error) {
	s.asking = 0
	if f.Error != nil {
		s.notBefore, s.gap, s.seen = time.Now().Add(subscribeAgain), max(s.gap, gapOpen), nil
		return false, f.Error, nil
	}
	var id string
	if wire.Unmarshal(f.Result, &id) != nil || id == "" || len(id) > 128 || id == s.id {
		return false, nil, nonsense("a subscription with the id %.140q", f.Result)
	}
	lost, s.gap = s.gap != noGap, noGap
	s.old, s.id = s.id, id
	s.have = s.asked.seq
	return lost, nil, nil
}

// notification is what an event comes in.
type notification struct {
	Subscription string   `json:"subscription"`
	Result       wire.Raw `json:"result"`
}

var errNoEvent = errors.New("it has no type or no signer")

// event hands an event of the node to the sink.
func (l *link) event(params []byte) error {
	var n notification
	var e struct {
		event
		Missed int64 `json:"missed"`
	}
	err := wire.Unmarshal(params, &n)
	if err == nil {
		err = wire.Unmarshal(n.Result, &e)
	}
	if err == nil && (e.Type == "" || e.Signer == "") {
		err = errNoEvent
	}
	if err != nil {
		return nonsense("an event: %w", err)
	}
	p := l.peer
	p.mu.Lock()
	wanted, overflow := p.subs.first(n.Subscription, e.event)
	p.mu.Unlock()
	if overflow {
		p.r.events.Lost()
	}
	if !wanted {
		if e.Missed > 0 { // of the subscription that the event came by; the other does not know
			p.r.events.Lost()
		}
		return nil
	}
	body := []byte(n.Result)
	if e.Missed > 0 {
		if body, err = withoutMissed(n.Result); err != nil {
			return nonsense("an event: %w", err)
		}
	}
	p.r.events.Remote(e.Signer, body, e.Missed)
	return nil
}

// first reports whether an event is wanted and came for the first time. overflow:
// more came while subscriptions changed than can be told apart; the old one is
// given up.
func (s *subscribed) first(subscription string, e event) (wanted, overflow bool) {
	if subscription == "" || subscription != s.id && subscription != s.old {
		return false, false
	}
	if s.seen == nil {
		return subscription == s.id, false
	}
	if _, again := s.seen[e]; again {
		return false, false
	}
	if len(s.seen) == maxSeen {
		s.seen = nil
		return subscription == s.id, true
	}
	s.seen[e] = struct{}{}
	return true, false
}

// withoutMissed writes an event again.
func withoutMissed(result []byte) ([]byte, error) {
	var e wire.Event
	if err := wire.Unmarshal(result, &e); err != nil {
		return nil, err
	}
	e.Missed = 0
	return wire.AppendEvent(nil, &e), nil
}
