package verify

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestARecorderFindsWhatCannotBeByTheAnswersAlone(t *testing.T) {
	for want, tell := range map[string]func(*Recorder){
		"": func(r *Recorder) {
			for account := range int64(3) {
				for nonce := range int64(1000) {
					r.Allocated(account, nonce, 1)
					r.Allocated(account, nonce, 3)
					r.Allocated(account, nonce, 2)
					r.Used(account, nonce, 3)
					r.Used(account, nonce, 3) // a mark may be repeated
				}
			}
			r.Allocated(1, 1<<62, 1<<40)
		},
		"nonce 300 was handed out twice with attempt 1": func(r *Recorder) { r.Allocated(7, 300, 1); r.Allocated(7, 300, 1) },
		"nonce 5 was handed out twice with attempt 2":   func(r *Recorder) { r.Allocated(7, 5, 2); r.Allocated(7, 5, 2) },
		"with attempt 1 and handed out with attempt 2":  func(r *Recorder) { r.Used(7, 5, 1); r.Allocated(7, 5, 2) },
		"with attempt 2 and handed out with attempt 4":  func(r *Recorder) { r.Allocated(7, 5, 4); r.Used(7, 5, 2) },
		"marked used with attempt 1 and with 2":         func(r *Recorder) { r.Used(7, 5, 1); r.Used(7, 5, 2) },
		"with attempt 0 was handed out":                 func(r *Recorder) { r.Allocated(7, 5, 0) },
		"nonce -1 with":                                 func(r *Recorder) { r.Allocated(7, -1, 1) },
	} {
		r := NewRecorder()
		tell(r)
		v := r.Result()
		if found := strings.Join(v.Violations, "\n"); (v.ViolationCount != 0) != (want != "") || !strings.Contains(found, want) {
			t.Errorf("found %d: %s; want %q", v.ViolationCount, found, want)
		}
	}
}

func TestARecorderIsToldByManyAtOnce(t *testing.T) {
	r := NewRecorder()
	var tellers sync.WaitGroup
	for teller := range 8 {
		tellers.Go(func() {
			for i := range int64(500) {
				r.Allocated(i%3, i*8+int64(teller), 1)
				s := r.NewSample(i)
				r.Unanswered(1)
				s.Ending()
			}
		})
	}
	tellers.Wait()
	if v := r.Result(); v.Allocations != 4000 || v.Unanswered != 4000 || v.ViolationCount != 0 {
		t.Errorf("%+v; want 4000 allocations and nothing wrong", v)
	}
	// Every nonce is walked once, in order.
	var walked []int64
	for account := range int64(3) {
		last := int64(-1)
		for nonce := range r.handedOut(account) {
			if nonce <= last {
				t.Fatalf("nonce %d after %d", nonce, last)
			}
			last = nonce
			walked = append(walked, last)
		}
	}
	if len(walked) != 4000 {
		t.Errorf("%d nonces were walked, want 4000", len(walked))
	}
}

func TestViolationsAreAllCountedAndSomeKept(t *testing.T) {
	r := NewRecorder()
	for i := range int64(1000) {
		r.Allocated(0, i, 0)
	}
	if v := r.Result(); v.ViolationCount != 1000 || len(v.Violations) != maxViolations {
		t.Errorf("%d violations, %d of them kept; want 1000 and %d", v.ViolationCount, len(v.Violations), maxViolations)
	}
}

func TestNamesOfAccountsAndHashesTellThemApart(t *testing.T) {
	if got, want := Signer(0xabc), "eip155:1:0x0000000000000000000000000000000000000abc"; got != want {
		t.Errorf("signer %s, want %s", got, want)
	}
	hash := TxHash(1, 2, 3, 4)
	if len(hash) != 66 || !sameHash(hash, 1, 2, 3) || !sameHash(TxHash(1, 2, 3, 9), 1, 2, 3) {
		t.Errorf("hash %s is not recognized", hash)
	}
	for _, other := range []string{TxHash(9, 2, 3, 4), TxHash(1, 9, 3, 4), TxHash(1, 2, 9, 4), "", fmt.Sprintf("0x%064x", 1)} {
		if sameHash(other, 1, 2, 3) {
			t.Errorf("hash %q was taken for %s", other, hash)
		}
	}
}
