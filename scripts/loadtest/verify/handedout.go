package verify

import (
	"math/bits"
	"slices"
)

// handedOut walks the nonces that a load was handed of one account, ascending.
// The load must be over.
type handedOut struct {
	pages []numbered
	at    int64 // the present one; nobody at the end
}

// numbered is a page with the number of its first nonce.
type numbered struct {
	*page
	first int64
}

func (r *Recorder) handedOut(account int64) handedOut {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := handedOut{at: nobody}
	for _, number := range s.byAccount[account] {
		h.pages = append(h.pages, numbered{s.pages[pageKey{account, number}], number * pageNonces})
	}
	slices.SortFunc(h.pages, func(a, b numbered) int { return int(min(max(a.first-b.first, -1), 1)) })
	h.seek(0)
	return h
}

func (h *handedOut) peek() int64 { return h.at }

func (h *handedOut) skip() {
	if h.at != nobody {
		h.seek(h.at%pageNonces + 1)
	}
}

// seek finds the first nonce at or after a place of the first page.
func (h *handedOut) seek(place int64) {
	for ; len(h.pages) > 0; h.pages, place = h.pages[1:], 0 {
		for place < pageNonces {
			word := h.pages[0].any[place/64] >> (place % 64)
			if word != 0 {
				h.at = h.pages[0].first + place + int64(bits.TrailingZeros64(word))
				return
			}
			place = place/64*64 + 64
		}
	}
	h.at = nobody
}

// usedAs is the attempt with which a nonce was acknowledged as used.
func (r *Recorder) usedAs(account, nonce int64) (attempt int64, used bool) {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := nonceKey{account, nonce}
	p := s.pages[pageKey{account, nonce / pageNonces}]
	if p == nil || !p.used.has(nonce%pageNonces) {
		return 0, false
	}
	return s.usedAttempt(k), true
}

// highest is the highest attempt with which a nonce was handed out.
func (r *Recorder) highest(account, nonce int64) int64 {
	s := r.shard(account)
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(1, s.highest[nonceKey{account, nonce}])
}
