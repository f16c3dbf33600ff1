package nonce

import "time"

// WatchKind says what a store keeps of a signer whose chain is watched, or what a write does to that.
type WatchKind int8

// The kinds. A store has those from WatchOn on; a write has all of them.
const (
	WatchOff     WatchKind = iota - 1 // the signer is not listed any more
	WatchAsIs                         // the list stays as it is
	WatchOn                           // the signer is listed; what the list says of it already stays
	WatchClear                        // it is listed, and nothing keeps its transactions from being mined
	WatchGap                          // its lowest unused nonce blocks others, and no node has a transaction of it
	WatchDropped                      // no node has the transaction of its lowest unused nonce any more
	WatchStuck                        // nodes have that transaction, and it is not mined for long
)

// Trouble reports whether something keeps the signer's transactions from being mined.
func (k WatchKind) Trouble() bool { return k >= WatchGap }

// String returns the word of lists and logs, "" without trouble.
func (k WatchKind) String() string {
	switch k {
	case WatchGap:
		return "gap"
	case WatchDropped:
		return "dropped"
	case WatchStuck:
		return "stuck"
	}
	return ""
}

// Watch is what the list of watched signers has of one, or is to have. The list is of the signers
// of chains with nonces that are open, or not final yet: the node that takes over a shard finds them there.
type Watch struct {
	Kind  WatchKind
	Nonce int64 // with trouble: the lowest unused nonce
	Since int64 // and since when, Unix milliseconds
}

// SinceTime is Since as a time.
func (w *Watch) SinceTime() time.Time { return time.UnixMilli(w.Since) }

// WatchEntry is a signer that is watched. ID orders the list.
type WatchEntry struct {
	ID     int64
	Signer string
	Watch
}
