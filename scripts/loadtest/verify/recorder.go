package verify

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
)

// Recorder is told what a load was answered. Its methods may be called by any
// goroutine.
type Recorder struct {
	salt       string // of the request ids of this run
	shards     [64]shard
	samples    samples
	violations violations

	allocations, unanswered, repeats, ids atomic.Int64
}

// NewRecorder makes a recorder of one run.
func NewRecorder() *Recorder {
	r := &Recorder{salt: rand.Text()[:10]}
	for i := range r.shards {
		r.shards[i].init()
	}
	return r
}

// Allocated says that a nonce was handed out by an answer that was not a repeat.
func (r *Recorder) Allocated(account, nonce, attempt int64) {
	r.allocations.Add(1)
	s := r.shard(account)
	s.mu.Lock()
	wrong := s.allocated(nonceKey{account, nonce}, attempt)
	s.mu.Unlock()
	r.violations.add(wrong)
}

// Used says that a markUsed with the hash of TxHash was acknowledged.
func (r *Recorder) Used(account, nonce, attempt int64) {
	s := r.shard(account)
	s.mu.Lock()
	wrong := s.markedUsed(nonceKey{account, nonce}, attempt)
	s.mu.Unlock()
	r.violations.add(wrong)
}

// Unanswered says that the outcome of n requests stayed unknown.
func (r *Recorder) Unanswered(n int) { r.unanswered.Add(int64(n)) }

func (r *Recorder) shard(account int64) *shard {
	return &r.shards[uint64(account)%uint64(len(r.shards))]
}

// shard keeps what is known of some of the accounts.
type shard struct {
	mu        sync.Mutex // guards what follows
	pages     map[pageKey]*page
	byAccount map[int64][]int64 // numbers of its pages, in the order they came
	// What a page cannot say, of nonces that were handed out more than once.
	handed  map[handOut]struct{} // attempts above 1
	highest map[nonceKey]int64   // of those
	used    map[nonceKey]int64   // attempt that was marked used, above 1
}

type nonceKey struct{ account, nonce int64 }

type handOut struct {
	nonceKey
	attempt int64
}

// pageKey names pageNonces nonces of one account.
type pageKey struct{ account, page int64 }

const pageNonces = 256

// page has a bit for each of its nonces.
type page struct {
	first bitmap // handed out with attempt 1
	any   bitmap // handed out with any attempt
	used  bitmap // marked used
}

type bitmap [pageNonces / 64]uint64

func (b *bitmap) has(i int64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b *bitmap) set(i int64)      { b[i/64] |= 1 << (i % 64) }

func (s *shard) init() {
	s.pages = make(map[pageKey]*page)
	s.byAccount = make(map[int64][]int64)
	s.handed = make(map[handOut]struct{})
	s.highest = make(map[nonceKey]int64)
	s.used = make(map[nonceKey]int64)
}

// page returns the page of a nonce and its place in it.
func (s *shard) page(k nonceKey) (*page, int64) {
	key := pageKey{k.account, k.nonce / pageNonces}
	p := s.pages[key]
	if p == nil {
		p = new(page)
		s.pages[key] = p
		s.byAccount[k.account] = append(s.byAccount[k.account], key.page)
	}
	return p, k.nonce % pageNonces
}

// allocated returns what is wrong with a hand-out, "" when nothing is.
func (s *shard) allocated(k nonceKey, attempt int64) string {
	if k.nonce < 0 || attempt < 1 {
		return fmt.Sprintf("%s: nonce %d with attempt %d was handed out, which cannot be", Signer(k.account), k.nonce, attempt)
	}
	p, i := s.page(k)
	again := attempt == 1 && p.first.has(i)
	p.any.set(i)
	if attempt == 1 {
		p.first.set(i)
	} else {
		again = s.handedLater(k, attempt)
	}
	switch {
	case again:
		return fmt.Sprintf("%s: nonce %d was handed out twice with attempt %d", Signer(k.account), k.nonce, attempt)
	case p.used.has(i) && attempt > s.usedAttempt(k):
		return usedAgain(k, s.usedAttempt(k), attempt)
	}
	return ""
}

// handedLater remembers an attempt above 1, and reports whether it was known.
func (s *shard) handedLater(k nonceKey, attempt int64) bool {
	_, known := s.handed[handOut{k, attempt}]
	s.handed[handOut{k, attempt}] = struct{}{}
	s.highest[k] = max(s.highest[k], attempt)
	return known
}

// markedUsed returns what is wrong with an acknowledged mark.
func (s *shard) markedUsed(k nonceKey, attempt int64) string {
	p, i := s.page(k)
	if p.used.has(i) && s.usedAttempt(k) != attempt {
		return fmt.Sprintf("%s: nonce %d was marked used with attempt %d and with %d", Signer(k.account), k.nonce, s.usedAttempt(k), attempt)
	}
	p.used.set(i)
	if attempt > 1 {
		s.used[k] = attempt
	}
	if later := s.highest[k]; later > attempt {
		return usedAgain(k, attempt, later)
	}
	return ""
}

// usedAttempt is the attempt of a nonce that was marked used.
func (s *shard) usedAttempt(k nonceKey) int64 { return max(1, s.used[k]) }

func usedAgain(k nonceKey, used, handed int64) string {
	return fmt.Sprintf("%s: nonce %d was marked used with attempt %d and handed out with attempt %d all the same",
		Signer(k.account), k.nonce, used, handed)
}

// maxViolations bounds the sentences that are kept; all are counted.
const maxViolations = 100

// violations collects what is wrong. Its methods may be called by any goroutine.
type violations struct {
	mu        sync.Mutex // guards what follows
	sentences []string
	count     int64
}

// add keeps a sentence; "" is none.
func (v *violations) add(sentence string) {
	if sentence == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	if len(v.sentences) < maxViolations {
		v.sentences = append(v.sentences, sentence)
	}
}

// all returns the sentences that were kept and how many there were.
func (v *violations) all() ([]string, int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.sentences...), v.count
}

// Signer is the name of an account on the wire. Its length is the same for all,
// and its last 16 digits are the account's number in hexadecimal.
func Signer(account int64) string { return fmt.Sprintf("eip155:1:0x%040x", account) }

// hashDigits is how many digits of a transaction hash say what it is about.
const hashDigits = 3 * 16

// TxHash is the hash under which a load marks a nonce used: no two marks of two
// connections have the same, and the part before that of the connection can be
// told from what was marked.
func TxHash(account, nonce, attempt, connection int64) string {
	return fmt.Sprintf("0x%016x%016x%016x%016x", account, nonce, attempt, connection)
}

// sameHash reports whether hash is one that TxHash gives this nonce.
func sameHash(hash string, account, nonce, attempt int64) bool {
	const known = len("0x") + hashDigits
	return len(hash) > known && hash[:known] == TxHash(account, nonce, attempt, 0)[:known]
}
