package chain

import (
	"context"
	"errors"
	"strings"
	"time"

	"noncegate/nonce"
)

// starter asks again and again where signers stand that are new here.
func (t *Tracker) starter(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.startNow:
		case <-pause.C:
		}
		if !t.startSome(ctx) {
			pause.Reset(startAgain)
		}
	}
}

const (
	startBatch = 100
	startAgain = 500 * time.Millisecond // after a question that no node answered
)

// startSome asks for all signers that wait, and returns false when some have to wait on.
func (t *Tracker) startSome(ctx context.Context) bool {
	for {
		t.mu.Lock()
		n := min(len(t.asking), startBatch)
		asked := t.asking[:n:n]
		for _, s := range asked {
			s.asked = false
		}
		t.asking = t.asking[n:]
		t.mu.Unlock()
		if n == 0 {
			return true
		}
		if left, err := t.start(ctx, asked); err != nil {
			t.mu.Lock()
			for _, s := range left {
				if !s.asked {
					s.asked = true
					t.asking = append(t.asking, s)
				}
			}
			t.mu.Unlock()
			if !errors.Is(err, context.Canceled) {
				t.silent.Do(func() {
					t.log.Warn("no node says where accounts stand, so that new signers cannot begin", "accounts", len(left), "error", err)
				})
			}
			return false
		}
	}
}

// start asks where signers stand. With an error some are left to be asked for again: all, or new ones
// about which the nodes disagree.
func (t *Tracker) start(ctx context.Context, asked []*signer) (left []*signer, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	accounts := make([]string, len(asked))
	for i, s := range asked {
		accounts[i] = s.account
	}
	sent := time.Now()
	starts, err := t.chain.Start(ctx, accounts)
	if err != nil {
		t.said.Store(said(err))
		return asked, err
	}
	var doubt error
	var begun []*signer
	for i, s := range asked {
		if starts[i].Doubt != nil && s.next.Load() == 0 {
			left, doubt = append(left, s), starts[i].Doubt
			continue
		}
		begun = append(begun, s)
		t.report(s, s.begin(starts[i]))
		signal(t.headNow) // which settles what it began with
	}
	t.said.Store(said(doubt))
	if err := t.lookAnew(ctx, begun); err != nil {
		return asked, err
	}
	for _, s := range begun {
		s.answered(sent)
	}
	return left, doubt
}

// said is an error of the nodes as a client may be told it.
func said(err error) *string {
	if err == nil {
		return nil
	}
	text := strings.Map(func(r rune) rune {
		switch {
		case r == '"', r == '\\':
			return '\''
		case r < ' ', r > '~', r == '<', r == '>', r == '&':
			return ' '
		}
		return r
	}, err.Error())
	text = text[:min(len(text), nonce.MaxSaid)]
	return &text
}

// lookAnew asks what nodes have of the lowest open nonces of signers for which a repair waits.
func (t *Tracker) lookAnew(ctx context.Context, asked []*signer) error {
	var of []*signer
	var asks []Ask
	for _, s := range asked {
		s.mu.Lock()
		if s.anew {
			of, asks = append(of, s), append(asks, s.askLocked(s.mined, s.lookLocked(s.mined)))
		}
		s.mu.Unlock()
	}
	if len(of) == 0 {
		return nil
	}
	found, err := t.chain.Lookup(ctx, asks)
	if err != nil {
		return err
	}
	at := t.number()
	for i, s := range of {
		s.sighted(asks[i].Nonce, &found[i], at)
		s.mu.Lock()
		s.anew = false
		if found[i].Seen == Mined {
			s.hintLocked(asks[i].Nonce + 1)
		}
		s.mu.Unlock()
	}
	return nil
}

func (t *Tracker) askStart(s *signer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askLocked(s)
}

// askLocked makes the starter ask where the signer stands.
func (t *Tracker) askLocked(s *signer) {
	if s.asked || len(t.asking) >= t.cfg.MaxSigners {
		return
	}
	s.asked = true
	t.asking = append(t.asking, s)
	signal(t.startNow)
}

// begin takes the first answer, or a later one. It names no block, so that the count at
// the next one replaces it.
func (s *signer) begin(st Start) (events []nonce.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		s.known, s.mined, s.guessed, s.stale, s.finalOld = true, st.Latest, true, true, true
		if s.gap != nil && s.gap.Nonce < s.mined {
			events = s.closeGapLocked()
		}
	}
	s.hintLocked(st.Latest)
	// A lower answer may be of a node that is behind, or of a pool that has lost something.
	if start := max(st.Latest, st.Pending); start >= s.start || time.Since(s.startAt) > startUsable {
		s.start, s.startAt = start, time.Now()
	}
	s.delegated = st.Delegated
	s.publishLocked()
	s.began.Store(time.Now().UnixNano())
	return events
}

// startUsable is how old the answer may be with which a new signer begins when it is planned: what
// is in pools may not be ours.
const startUsable = 30 * time.Second

// waiter is a request that waits for an answer to Start. done is called once, by what takes it out of
// signer.waiting.
type waiter struct {
	since time.Time
	timer *time.Timer
	done  func()
}

// await calls done when nodes that are asked from now on have answered, or when wait is over. Then
// what they said before is too old for a signer to begin with, and for a repair.
func (s *signer) await(wait time.Duration, anew bool, done func()) {
	w := &waiter{since: time.Now(), done: done}
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting = make(map[*waiter]struct{})
	}
	s.waiting[w] = struct{}{}
	s.anew = s.anew || anew
	w.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		_, waits := s.waiting[w]
		if delete(s.waiting, w); waits {
			s.began.Store(0)
		}
		s.mu.Unlock()
		if waits {
			w.done()
		}
	})
	s.mu.Unlock()
	s.t.askStart(s)
}

// answered calls the callers that wait for an answer to a question that was sent at a time. A later
// one waits for the next answer.
func (s *signer) answered(sent time.Time) {
	s.mu.Lock()
	var told []*waiter
	for w := range s.waiting {
		if !w.since.After(sent) {
			told = append(told, w)
			delete(s.waiting, w)
		}
	}
	s.mu.Unlock()
	for _, w := range told {
		w.timer.Stop()
		w.done()
	}
}
