package wire

// AllocateParams are the params of nonce_allocate.
type AllocateParams struct {
	Signer    string `json:"signer" param:"required"`
	Count     int64  `json:"count,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	RequestID string `json:"requestId,omitempty" param:"notempty"`    // empty: none
	HoldMs    int64  `json:"holdMs,omitempty" param:"min=1"`          // from 1; 0: the gateway's default
	Guard     *Guard `json:"guard,omitempty"`
	// RecordFirst promises that nothing is sent before nonce_markSigned has recorded its
	// hash. Without one a hold that is over then needs no judging: it was not used.
	RecordFirst bool `json:"recordFirst,omitempty"`
}

// MarkUsedParams are the params of nonce_markUsed.
type MarkUsedParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	TxHash  string `json:"txHash,omitempty" param:"notempty"`         // empty: used, and the hash is not known
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
}

// MarkRecyclableParams are the params of nonce_markRecyclable.
type MarkRecyclableParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	Reason  string `json:"reason,omitempty"`
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
	// Unsent says that no node has a transaction whose hash was recorded: none was given
	// one, or each that was has refused it for good.
	Unsent bool `json:"unsent,omitempty"`
}

// MarkSignedParams are the params of nonce_markSigned.
type MarkSignedParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	TxHash  string `json:"txHash" param:"required"`
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
}

// ExtendParams are the params of nonce_extend.
type ExtendParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	HoldMs  int64  `json:"holdMs" param:"required min=1"`             // from 1, counted from the commit
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
}

// RepairParams are the params of nonce_repair.
type RepairParams struct {
	Signer string `json:"signer" param:"required"`
	Nonce  *int64 `json:"nonce,omitempty"`                // nil: the lowest one that the chain has not used
	HoldMs int64  `json:"holdMs,omitempty" param:"min=1"` // from 1; 0: the gateway's default
	// As in AllocateParams.
	RequestID string `json:"requestId,omitempty" param:"notempty"`
}

// StatusParams are the params of nonce_status.
type StatusParams struct {
	Signer string `json:"signer" param:"required"`
}

// ListParams are the params of nonce_list.
type ListParams struct {
	Signer string `json:"signer" param:"required"`
	Status string `json:"status,omitempty" param:"oneof=HELD|RELEASED|CONSUMED|UNKNOWN"` // one of the states; empty: all
	From   int64  `json:"from,omitempty"`                                                // the lowest nonce wanted
	Limit  int64  `json:"limit,omitempty" param:"min=1 max=1000 default=100"`            // 1 to MaxListLimit; 100 when absent
}

// SetFloorParams are the params of nonce_setFloor.
type SetFloorParams struct {
	Signer string `json:"signer" param:"required"`
	Floor  int64  `json:"floor" param:"required"`
}

// SubscribeParams are the params of nonce_subscribe. By name there are only the
// signers, because there is only one topic.
type SubscribeParams struct {
	Signers []string `json:"signers,omitempty" param:"notempty"` // nil: all
}

// TopicEvents is what can be subscribed to.
const TopicEvents = "events"

// Guard names a submission, so that the same one is not made twice at a time.
type Guard struct {
	Key        string `json:"key" param:"required notempty"`
	IntervalMs int64  `json:"intervalMs,omitempty" param:"min=100 max=600000 default=10000"` // 100 to 600000; 10000 when absent
	Keep       bool   `json:"keep,omitempty"`                                                // guard for the interval, not only until answered
}

// MaxListLimit is the most rows that nonce_list returns at once.
const MaxListLimit = 1000

var (
	decodeFilter = Params[SubscribeParams]()
	decodeTopic  = Params[topicParams]()
)

// topicParams are those of nonce_subscribe by position.
type topicParams struct {
	Topic  string `json:"topic" param:"required oneof=events"`
	Filter Raw    `json:"filter"`
}

// DecodeSubscribe decodes the params of nonce_subscribe, as a decoder of Params does:
// ["events"], ["events", {signers}], or {signers}.
func DecodeSubscribe(params []byte) (SubscribeParams, *Error) {
	if _, ok := oneObject(params); ok {
		return decodeFilter(params)
	}
	p, err := decodeTopic(params)
	switch {
	case err != nil:
		return SubscribeParams{}, err
	case len(p.Filter) > 0 && p.Filter[0] != '{':
		return SubscribeParams{}, invalidParams("filter", "must be an object")
	}
	return decodeFilter(p.Filter)
}

// UnsubscribeParams are the params of nonce_unsubscribe.
type UnsubscribeParams struct {
	ID string `json:"id" param:"required"`
}

// NoParams are those of a method that takes none.
type NoParams struct{}
