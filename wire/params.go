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
	// OnlyKnown is said between nodes: answer what RequestID was given before, and
	// hand nothing out.
	OnlyKnown bool `json:"onlyKnown,omitempty" param:"named"`
	// Principal is said between nodes: who asks, in sixteen hexadecimal digits; empty:
	// nobody in particular.
	Principal string `json:"principal,omitempty" param:"named notempty"`
	// MaxOpen is said with it: how many holds the principal may have; 0: any number.
	MaxOpen int64 `json:"maxOpen,omitempty" param:"named min=1 max=2147483647"`
}

// MarkUsedParams are the params of nonce_markUsed.
type MarkUsedParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	TxHash  string `json:"txHash,omitempty" param:"notempty"`         // empty: used, and the hash is not known
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
	// Principal is that of AllocateParams, and MarkAny is said between nodes, too: who
	// asks may mark holds of others.
	Principal string `json:"principal,omitempty" param:"named notempty"`
	MarkAny   bool   `json:"markAny,omitempty" param:"named"`
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
	// Forwarded is said between nodes, with TxHash: the gateway gave that transaction to
	// the nodes of its chain, and all refused it.
	// Keep, with Forwarded, leaves the hold with its holder.
	Forwarded bool   `json:"forwarded,omitempty" param:"named"`
	Keep      bool   `json:"keep,omitempty" param:"named"`
	TxHash    string `json:"txHash,omitempty" param:"named notempty"`
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty" param:"named notempty"`
	MarkAny   bool   `json:"markAny,omitempty" param:"named"`
}

// MarkSignedParams are the params of nonce_markSigned.
type MarkSignedParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	TxHash  string `json:"txHash" param:"required"`
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1 current"` // from 1; absent 1, or with Forwarded 0, which is the current one
	Guard   *Guard `json:"guard,omitempty"`
	// Forwarded is said between nodes: the gateway itself is about to give the
	// transaction to the nodes of its chain. Take, with it, hands the nonce out if it is
	// the next one and nobody holds it; MaxOpen, with that, is as in AllocateParams. Over is
	// the transaction that this one may replace.
	Forwarded bool   `json:"forwarded,omitempty" param:"named"`
	Take      bool   `json:"take,omitempty" param:"named"`
	Over      string `json:"over,omitempty" param:"named notempty"`
	MaxOpen   int64  `json:"maxOpen,omitempty" param:"named min=1 max=2147483647"`
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty" param:"named notempty"`
	MarkAny   bool   `json:"markAny,omitempty" param:"named"`
}

// ExtendParams are the params of nonce_extend.
type ExtendParams struct {
	Signer  string `json:"signer" param:"required"`
	Nonce   int64  `json:"nonce" param:"required"`
	HoldMs  int64  `json:"holdMs" param:"required min=1"`             // from 1, counted from the commit
	Attempt int64  `json:"attempt,omitempty" param:"min=1 default=1"` // from 1; 1 when absent
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty" param:"named notempty"`
	MarkAny   bool   `json:"markAny,omitempty" param:"named"`
}

// RepairParams are the params of nonce_repair.
type RepairParams struct {
	Signer string `json:"signer" param:"required"`
	Nonce  *int64 `json:"nonce,omitempty"`                // nil: the lowest one that the chain has not used
	HoldMs int64  `json:"holdMs,omitempty" param:"min=1"` // from 1; 0: the gateway's default
	// As in AllocateParams.
	RequestID string `json:"requestId,omitempty" param:"notempty"`
	Principal string `json:"principal,omitempty" param:"named notempty"`
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
	// ChainOnly is said between nodes: only nonces of which the chain says something are wanted, and
	// only that.
	ChainOnly bool `json:"chainOnly,omitempty" param:"named"`
}

// SetFloorParams are the params of nonce_setFloor.
type SetFloorParams struct {
	Signer string `json:"signer" param:"required"`
	Floor  int64  `json:"floor" param:"required"`
	// As in AllocateParams.
	Principal string `json:"principal,omitempty" param:"named notempty"`
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
