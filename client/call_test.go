package client

import (
	"errors"
	"testing"
	"time"

	"noncegate/wire"
)

func TestRefusalsThatStayAreReturnedAtOnce(t *testing.T) {
	for _, sentinel := range refusals {
		number := int(sentinel.(code))
		if (&history{}).passes(&refusal{wire.Errorf(number, "")}) {
			continue
		}
		story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
			wait := allocate(t, c, AllocateRequest{})
			nonce := int64(5)
			p.Reject(p.Next(wire.MethodAllocate), number, sentinel.Error(), wire.ErrorData{Nonce: &nonce})
			_, err := wait()
			if !errors.Is(err, sentinel) {
				t.Errorf("got error %v, want %v", err, sentinel)
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || *e.Data.Nonce != 5 {
				t.Errorf("error %v has no data", err)
			}
			if _, ok := errors.AsType[*UnknownOutcomeError](err); ok {
				t.Errorf("%v is unknown", err)
			}
		})
	}
}

func TestPausesBetweenTriesGrowUpToTheLongest(t *testing.T) {
	story(t, Config{MaxElapsed: -1, RetryMax: 400 * time.Millisecond}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		r, longest := p.Next(wire.MethodAllocate), time.Duration(0)
		for i := range 50 { // they are drawn: that all of 48 are below half of their bound does not happen
			busy(p, r, 0)
			refused := time.Now()
			r = p.Next(wire.MethodAllocate)
			pause := time.Since(refused)
			if bound := min(100*time.Millisecond<<min(i, 2), 400*time.Millisecond); pause > bound {
				t.Errorf("pause %d is %v, want at most %v", i, pause, bound)
			}
			longest = max(longest, pause)
		}
		if longest < 200*time.Millisecond {
			t.Errorf("the longest of 50 pauses is %v", longest)
		}
		p.Answer(r, held(1))
		finish(t, wait)
	})
}

// Once a try is unknown, no refusal but conflict may hide it.
func TestRefusalsAfterALostAnswerDoNotSettleIt(t *testing.T) {
	nothing := map[string]int{
		"server_busy": wire.CodeServerBusy, "fenced": wire.CodeFenced,
		"not_found": wire.CodeNotFound, "hold_limit": wire.CodeHoldLimit, "duplicate_submit": wire.CodeDuplicateSubmit,
	}
	for reason, number := range nothing {
		story(t, Config{MaxElapsed: 5 * time.Second}, func(t *testing.T, n *network, c *Client, p *peer) {
			wait := allocate(t, c, AllocateRequest{RequestID: "mine"})
			p.Next(wire.MethodAllocate)
			p.Cut()
			p = <-n.Host("a").Peers
			go func() {
				for r := range p.Requests {
					p.Reject(r, number, reason, wire.ErrorData{})
				}
			}()
			_, err := wait()
			u := wantUnknown(t, err)
			if u.RequestID != "mine" || u.Last == nil || !errors.Is(u.Last, code(number)) {
				t.Errorf("%s: got %+v", reason, u)
			}
			if errors.Is(err, code(number)) || !errors.Is(err, ErrConnectionLost) {
				t.Errorf("%s: error %v matches a refusal that settles nothing", reason, err)
			}
		})
	}
}

func TestAResultThatCannotBeReadIsNoRefusal(t *testing.T) {
	story(t, Config{}, func(t *testing.T, _ *network, c *Client, p *peer) {
		wait := allocate(t, c, AllocateRequest{})
		p.Answer(p.Next(wire.MethodAllocate), "what?")
		_, err := wait()
		wantUnknown(t, err)
	})
}
