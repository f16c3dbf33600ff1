package history

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"time"
)

// Kind says what a call asked for.
type Kind string

// The kinds of calls.
const (
	Allocate       Kind = "allocate"
	MarkUsed       Kind = "markUsed"
	MarkRecyclable Kind = "markRecyclable"
	SetFloor       Kind = "setFloor"
	Status         Kind = "status"
)

// Outcome says what a client knows of its call once it has ended.
type Outcome string

// The three outcomes. They are never merged.
const (
	// Happened: the answer was a result.
	Happened Outcome = "happened"
	// Refused: the answer says that nothing happened.
	Refused Outcome = "refused"
	// Unknown: the answer says that nobody knows, or there was none.
	Unknown Outcome = "unknown"
)

// The states of an allocation, as on the wire.
const (
	Held     = "HELD"
	Released = "RELEASED"
	Consumed = "CONSUMED"
)

// belowFloor is the reason of an allocation that a raised floor consumed.
const belowFloor = "below_floor"

// expired is the reason of an allocation whose hold passed its deadline.
const expired = "expired"

// Given is one nonce of an allocation with its generation.
type Given struct {
	Nonce   int64 `json:"nonce"`
	Attempt int64 `json:"attempt"`
}

// Call is one request of a client to one node and what came of it. A request that
// was refused and asked again elsewhere is two calls.
type Call struct {
	Client int    `json:"client"`
	Node   string `json:"node"` // the one that was asked
	Kind   Kind   `json:"kind"`
	Signer string `json:"signer"`

	Count     int    `json:"count,omitempty"`     // allocate
	RequestID string `json:"requestId,omitempty"` // allocate; "" for none
	HoldMs    int64  `json:"holdMs,omitempty"`    // allocate: what was asked for, the default where nothing was
	Nonce     int64  `json:"nonce,omitempty"`     // marks
	Attempt   int64  `json:"attempt,omitempty"`   // marks
	TxHash    string `json:"txHash,omitempty"`    // markUsed
	Why       string `json:"why,omitempty"`       // markRecyclable: the reason given
	Floor     int64  `json:"floor,omitempty"`     // setFloor

	// Conn and Seq tell on which connection and in which order the call was sent; 0
	// where that is not known. Every Conn is of one client to one node.
	Conn int64 `json:"conn,omitempty"`
	Seq  int64 `json:"seq,omitempty"`

	// Start and End are counted from the beginning of the history, by one
	// monotonic clock. End of an unknown call is when its client gave up.
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Outcome Outcome       `json:"outcome"`
	// Reason is the stable word of a refusal, or says why the outcome is unknown.
	Reason string `json:"reason,omitempty"`
	// Detail is the sentence that came with it, for people.
	Detail string `json:"detail,omitempty"`

	Nonces    []Given `json:"nonces,omitempty"`    // allocate: what was handed out, ascending
	Token     int64   `json:"token,omitempty"`     // allocate: the fencing token; status: that of the row
	HeldUntil int64   `json:"heldUntil,omitempty"` // allocate: store clock, Unix milliseconds
	State     string  `json:"state,omitempty"`     // marks: the state the nonce is in now
	FloorNow  int64   `json:"floorNow,omitempty"`  // setFloor, status
	Next      int64   `json:"next,omitempty"`      // setFloor, status
	Version   int64   `json:"version,omitempty"`   // status

	// Seen is what a conflict says about the nonce of a mark.
	Seen *Seen `json:"seen,omitempty"`
	// Holds are what a conflict says about the nonces of a request id.
	Holds []Given `json:"holds,omitempty"`
}

// Seen is the state of a nonce as a conflict shows it.
type Seen struct {
	Status  string `json:"status"`
	Attempt int64  `json:"attempt"`
	TxHash  string `json:"txHash,omitempty"`
}

// Sample is one look at a signer's row while clients work, read from the store and
// not through a gateway. Those of one signer are in the order of their reading.
type Sample struct {
	At          time.Duration `json:"at"`
	Signer      string        `json:"signer"`
	Owner       string        `json:"owner,omitempty"`
	Incarnation int64         `json:"incarnation,omitempty"`
	Token       int64         `json:"token"`
	Version     int64         `json:"version"`
	Next        int64         `json:"next"`
	Floor       int64         `json:"floor"`
	// Written is the token under which the row was written last; 0: that is not known, or it was under none.
	Written int64 `json:"written,omitempty"`
	// Both are the nonces that live and are in the history as well.
	Both []int64 `json:"both,omitempty"`
}

// Row is a stored allocation.
type Row struct {
	Nonce     int64  `json:"nonce"`
	Status    string `json:"status"`
	Attempt   int64  `json:"attempt"`
	TxHash    string `json:"txHash,omitempty"` // the newest, as on the wire
	Reason    string `json:"reason,omitempty"`
	HeldUntil int64  `json:"heldUntil,omitempty"` // store clock, Unix milliseconds; while HELD
	// Replaced are the hashes that TxHash has replaced, oldest first.
	Replaced []string `json:"replaced,omitempty"`
}

// Recorded takes the hashes of a row as stores keep them, 32 bytes each: the newest, and then those that it replaced, oldest first.
func (r *Row) Recorded(stored []byte) {
	r.TxHash, r.Replaced = "", nil
	for i, h := range slices.Collect(slices.Chunk(stored, 32)) {
		if tx := "0x" + hex.EncodeToString(h); i == 0 {
			r.TxHash = tx
		} else {
			r.Replaced = append(r.Replaced, tx)
		}
	}
}

// hashes are all that are recorded, oldest first.
func (r *Row) hashes() []string {
	if r.TxHash == "" {
		return nil
	}
	return append(slices.Clone(r.Replaced), r.TxHash)
}

// maxHashes is how many are recorded for one hand-out of a nonce at most.
const maxHashes = 8

// StoredSigner is a signer's row and its allocations in order of nonce.
type StoredSigner struct {
	Signer  string `json:"signer"`
	Next    int64  `json:"next"`
	Floor   int64  `json:"floor"`
	Held    int64  `json:"held"`
	Version int64  `json:"version"`
	Token   int64  `json:"token"`
	Rows    []Row  `json:"rows"`
	// Requests are the request ids that are remembered, and what each got; nil: they were not read.
	Requests map[string][]Given `json:"requests,omitempty"`
}

// Final is all that is stored, read in one transaction after every call has ended and every fault was healed.
type Final struct {
	Now     int64          `json:"now"` // store clock, Unix milliseconds
	Signers []StoredSigner `json:"signers"`
}

// History is one run.
type History struct {
	// RowsBehind says that the rows of signers may be behind what their owners have answered.
	// A node that does not own a signer tells of its rows.
	RowsBehind bool `json:"rowsBehind,omitempty"`
	// BeganAt is the beginning of the history by the store's clock, in Unix milliseconds; 0: not known.
	BeganAt int64 `json:"beganAt,omitempty"`
	// Shifts are the settings of the store's clock, in their order. Without any it is right.
	Shifts []Shift `json:"shifts,omitempty"`
	// GraceMs is for how long after its deadline nobody ends a hold.
	GraceMs int64    `json:"graceMs,omitempty"`
	Seed    uint64   `json:"seed"`
	Name    string   `json:"name"`             // of the campaign or test
	Faults  []string `json:"faults,omitempty"` // what was done, in words, in order
	Calls   []Call   `json:"calls"`
	Samples []Sample `json:"samples,omitempty"`
	Final   *Final   `json:"final,omitempty"`
	// Losses with Redis after which signers were mended, by signer in their order.
	Losses []Loss `json:"losses,omitempty"`
	// Setbacks are the times that the store lost commits.
	Setbacks []Setback `json:"setbacks,omitempty"`
	// Left says why nodes left the performance engine by themselves, each time.
	Left []string `json:"left,omitempty"`
	// Chain is of the signers of a chain, who are in no other member; nil: there was none.
	Chain *Chain `json:"chain,omitempty"`
}

// Shift says that the store's clock was set.
type Shift struct {
	// From and To are the moments between which it took effect.
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
	// By is what the store's clock is ahead of the wall clock from then on.
	By time.Duration `json:"by"`
}

// Save writes the history as JSON.
func (h *History) Save(path string) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	return err
}
