package rules_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
)

// TestABatchIsAnsweredAsItsOpsWouldBeOneAfterAnother: however ops are cut into batches,
// they are told the same and leave the same.
func TestABatchIsAnsweredAsItsOpsWouldBeOneAfterAnother(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		one, many := newRoom(t), newRoom(t)
		for step := range 30 {
			if rnd.IntN(3) == 0 {
				wait := time.Duration(rnd.IntN(40)) * time.Second
				one.now, many.now = one.now+wait, many.now+wait
			}
			if seed%2 == 0 && rnd.IntN(3) == 0 {
				var words []string
				if rnd.IntN(9) > 0 {
					words = append(words, "known")
				}
				words = append(words, "unknown=1m", fmt.Sprint("window=", 20*rnd.Int64N(2)))
				if rnd.IntN(2) == 0 {
					words = append(words, "unseen")
				}
				mined := min(one.signer.Next, rnd.Int64N(int64(step)+1))
				words = append(words, fmt.Sprint("mined=", mined), fmt.Sprint("final=", max(0, mined-rnd.Int64N(20))))
				chain := &noncetest.Chain{}
				chain.Say(t, words...)
				one.chain, many.chain = chain, chain
			}
			lines := make([]string, 1+rnd.IntN(8))
			for i := range lines {
				if lines[i] = randomOp(rnd, one); rnd.IntN(5) == 0 && !strings.Contains(lines[i], "id=") {
					lines[i] += " dry"
				}
			}
			// What ends by itself ends at the first plan: so that both have one then.
			for _, r := range []*room{one, many} {
				r.run(noncetest.Parse(t, "status"))
			}
			var want []string
			for _, line := range lines {
				op := noncetest.Parse(t, line)
				one.run(op)
				want = append(want, noncetest.Result(op))
			}
			ops := make([]*noncetest.Op, len(lines))
			for i, line := range lines {
				ops[i] = noncetest.Parse(t, line)
			}
			many.run(ops...)
			for i, op := range ops {
				if got := noncetest.Result(op); got != want[i] {
					t.Fatalf("seed %d, step %d: %s of %q: got %q in a batch and %q alone", seed, step, lines[i], lines, got, want[i])
				}
			}
			a, b := one.signer, many.signer
			a.Version, b.Version = 0, 0
			if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(one.history, many.history) {
				t.Fatalf("seed %d, step %d: %q leaves %+v in a batch and %+v one after another", seed, step, lines, b, a)
			}
			one.stored(seed)
		}
	}
}

// stored checks that the live state is read as it is written.
func (r *room) stored(seed uint64) {
	got, err := nonce.ParseLive(nonce.AppendLive(nil, r.signer.Live), r.signer.Next)
	if err != nil || len(got) != len(r.signer.Live) || !reflect.DeepEqual(append([]nonce.Entry{}, got...), append([]nonce.Entry{}, r.signer.Live...)) {
		r.Fatalf("seed %d: %+v is read as %+v, %v", seed, r.signer.Live, got, err)
	}
}

func randomOp(rnd *rand.Rand, r *room) string {
	n, attempt := rnd.Int64N(r.signer.Next+2), 1+rnd.Int64N(3)
	if i, ok := r.signer.Find(n); ok && rnd.IntN(5) > 0 {
		attempt = r.signer.Live[i].Attempt
	}
	by := fmt.Sprintf(" by=%d", rnd.IntN(3))
	hash := fmt.Sprintf(" hash=%d", rnd.IntN(4))
	lines := []string{
		"allocate" + by, "allocate" + by, fmt.Sprintf("allocate count=%d", 1+rnd.IntN(3)), fmt.Sprintf("allocate id=%d", rnd.IntN(6)),
		"allocate first" + by, "allocate hold=5s", fmt.Sprintf("used %d#%d%s%s", n, attempt, hash, by),
		fmt.Sprintf("used %d#%d%s any", n, attempt, hash), fmt.Sprintf("release %d#%d%s", n, attempt, by),
		fmt.Sprintf("release %d#%d unsent", n, attempt), fmt.Sprintf("release %d#%d refused%s", n, attempt, hash),
		fmt.Sprintf("signed %d#%d%s%s", n, attempt, hash, by), fmt.Sprintf("send %d%s take", n, hash),
		fmt.Sprintf("extend %d#%d hold=20s", n, attempt), fmt.Sprintf("floor %d", rnd.Int64N(r.signer.Next+3)*rnd.Int64N(2)), "status", "status",
	}
	if _, live := r.signer.Find(n); live { // of others the attempt depends on the number of plans
		lines = append(lines, fmt.Sprintf("repair %d", n), fmt.Sprintf("repair %d id=%d", n, 6+rnd.IntN(3)))
	}
	return lines[rnd.IntN(len(lines))]
}

// TestEveryNonceBelowTheCursorIsSomewhere: none is lost, none is handed out twice in one
// attempt, and attempts only rise.
func TestEveryNonceBelowTheCursorIsSomewhere(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := newRoom(t)
		given := make(map[int64]int64)
		for range 200 {
			if rnd.IntN(10) == 0 {
				r.now += time.Duration(rnd.IntN(60)) * time.Second
			}
			op := noncetest.Parse(t, randomOp(rnd, r))
			r.run(op)
			for i, n := range op.Nonces {
				if op.RequestID == "" && op.Attempts[i] <= given[n] {
					t.Fatalf("seed %d: nonce %d is handed out as attempt %d after %d", seed, n, op.Attempts[i], given[n])
				}
				given[n] = max(given[n], op.Attempts[i])
			}
			for n := range given {
				_, live := r.signer.Find(n)
				if past := r.history[n]; !live && (past == nil || past.Attempt < given[n]) {
					t.Fatalf("seed %d: nonce %d is nowhere, of %+v", seed, n, r.signer)
				}
			}
			if held := slices.IndexFunc(r.signer.Live, func(e nonce.Entry) bool { return e.Status == nonce.Held && e.Until == 0 }); held >= 0 {
				t.Fatalf("seed %d: a hold without a deadline in %+v", seed, r.signer)
			}
		}
	}
}
