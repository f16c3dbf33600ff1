package wire

import "math"

// AllocateParams are the params of nonce_allocate.
type AllocateParams struct {
	Signer    string `json:"signer"`
	Count     int64  `json:"count,omitempty"`     // from 1; 1 when absent
	RequestID string `json:"requestId,omitempty"` // empty: none
	HoldMs    int64  `json:"holdMs,omitempty"`    // from 1; 0: the gateway's default
	Guard     *Guard `json:"guard,omitempty"`
	// RecordFirst promises that nothing is sent before nonce_markSigned has recorded its
	// hash. Without one a hold that is over then needs no judging: it was not used.
	RecordFirst bool `json:"recordFirst,omitempty"`
	// OnlyKnown is said between nodes: answer what RequestID was given before, and
	// hand nothing out.
	OnlyKnown bool `json:"onlyKnown,omitempty"`
	// Principal is said between nodes: who asks, in sixteen hexadecimal digits; empty:
	// nobody in particular.
	Principal string `json:"principal,omitempty"`
	// MaxOpen is said with it: how many holds the principal may have; 0: any number.
	MaxOpen int64 `json:"maxOpen,omitempty"`
}

// MarkUsedParams are the params of nonce_markUsed.
type MarkUsedParams struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	TxHash  string `json:"txHash,omitempty"`  // empty: used, and the hash is not known
	Attempt int64  `json:"attempt,omitempty"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
	// Principal is that of AllocateParams, and MarkAny is said between nodes, too: who
	// asks may mark holds of others.
	Principal string `json:"principal,omitempty"`
	MarkAny   bool   `json:"markAny,omitempty"`
}

// MarkRecyclableParams are the params of nonce_markRecyclable.
type MarkRecyclableParams struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Reason  string `json:"reason,omitempty"`
	Attempt int64  `json:"attempt,omitempty"` // from 1; 1 when absent
	Guard   *Guard `json:"guard,omitempty"`
	// Unsent says that no node has a transaction whose hash was recorded: none was given
	// one, or each that was has refused it for good.
	Unsent bool `json:"unsent,omitempty"`
	// Forwarded is said between nodes, with TxHash: the gateway gave that transaction to
	// the nodes of its chain, and all refused it.
	// Keep, with Forwarded, leaves the hold with its holder.
	Forwarded bool   `json:"forwarded,omitempty"`
	Keep      bool   `json:"keep,omitempty"`
	TxHash    string `json:"txHash,omitempty"`
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty"`
	MarkAny   bool   `json:"markAny,omitempty"`
}

// MarkSignedParams are the params of nonce_markSigned.
type MarkSignedParams struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	TxHash  string `json:"txHash"`
	Attempt int64  `json:"attempt,omitempty"` // from 1; absent 1, or with Forwarded 0, which is the current one
	Guard   *Guard `json:"guard,omitempty"`
	// Forwarded is said between nodes: the gateway itself is about to give the
	// transaction to the nodes of its chain. Take, with it, hands the nonce out if it is
	// the next one and nobody holds it; MaxOpen, with that, is as in AllocateParams. Over is
	// the transaction that this one may replace.
	Forwarded bool   `json:"forwarded,omitempty"`
	Take      bool   `json:"take,omitempty"`
	Over      string `json:"over,omitempty"`
	MaxOpen   int64  `json:"maxOpen,omitempty"`
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty"`
	MarkAny   bool   `json:"markAny,omitempty"`
}

// ExtendParams are the params of nonce_extend.
type ExtendParams struct {
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	HoldMs  int64  `json:"holdMs"`            // from 1, counted from the commit
	Attempt int64  `json:"attempt,omitempty"` // from 1; 1 when absent
	// As in MarkUsedParams.
	Principal string `json:"principal,omitempty"`
	MarkAny   bool   `json:"markAny,omitempty"`
}

// RepairParams are the params of nonce_repair.
type RepairParams struct {
	Signer string `json:"signer"`
	Nonce  *int64 `json:"nonce,omitempty"`  // nil: the lowest one that the chain has not used
	HoldMs int64  `json:"holdMs,omitempty"` // from 1; 0: the gateway's default
	// As in AllocateParams.
	RequestID string `json:"requestId,omitempty"`
	Principal string `json:"principal,omitempty"`
}

// StatusParams are the params of nonce_status.
type StatusParams struct {
	Signer string `json:"signer"`
}

// ListParams are the params of nonce_list.
type ListParams struct {
	Signer string `json:"signer"`
	Status string `json:"status,omitempty"` // one of the states; empty: all
	From   int64  `json:"from,omitempty"`   // the lowest nonce wanted
	Limit  int64  `json:"limit,omitempty"`  // 1 to MaxListLimit; 100 when absent
	// ChainOnly is said between nodes: only nonces of which the chain says something are wanted, and
	// only that.
	ChainOnly bool `json:"chainOnly,omitempty"`
}

// SetFloorParams are the params of nonce_setFloor.
type SetFloorParams struct {
	Signer string `json:"signer"`
	Floor  int64  `json:"floor"`
	// As in AllocateParams.
	Principal string `json:"principal,omitempty"`
}

// SubscribeParams are the params of nonce_subscribe. By name there are only the
// signers, because there is only one topic.
type SubscribeParams struct {
	Topic   string   `json:"-"`                 // TopicEvents
	Signers []string `json:"signers,omitempty"` // nil: all
}

// TopicEvents is what can be subscribed to.
const TopicEvents = "events"

// Guard names a submission, so that the same one is not made twice at a time.
type Guard struct {
	Key        string `json:"key"`
	IntervalMs int64  `json:"intervalMs,omitempty"` // 100 to 600000; 10000 when absent
	Keep       bool   `json:"keep,omitempty"`       // guard for the interval, not only until answered
}

// The bounds of parameters that nothing can configure, and what stands for one
// that is not given.
const (
	DefaultListLimit = 100
	MaxListLimit     = 1000

	DefaultGuardMs = 10_000
	MinGuardMs     = 100
	MaxGuardMs     = 600_000
)

// DecodeAllocate decodes the params of nonce_allocate. Like that of all the
// decoders here, its error is invalid_params and names the field and the rule;
// with an error the value means nothing. Absent parameters have their defaults.
func DecodeAllocate(params []byte) (AllocateParams, *Error) {
	var given struct {
		Signer    text        `json:"signer"`
		Count     number      `json:"count"`
		RequestID text        `json:"requestId"`
		HoldMs    number      `json:"holdMs"`
		Guard     *guardGiven `json:"guard"`
		First     bool        `json:"recordFirst"`
		OnlyKnown bool        `json:"onlyKnown"` // by name only, as what follows
		Principal text        `json:"principal"`
		MaxOpen   number      `json:"maxOpen"`
	}
	c := checker{bind(params, &given, "signer", "count", "requestId", "holdMs", "guard", "recordFirst")}
	p := AllocateParams{
		Signer:    c.needText("signer", given.Signer),
		Count:     c.between("count", given.Count, 1, 1, math.MaxInt64),
		RequestID: c.notEmpty("requestId", given.RequestID),
		HoldMs:    c.between("holdMs", given.HoldMs, 0, 1, math.MaxInt64),
		Guard:     c.guard(given.Guard),

		RecordFirst: given.First,

		OnlyKnown: given.OnlyKnown,
		Principal: c.notEmpty("principal", given.Principal),
		MaxOpen:   c.between("maxOpen", given.MaxOpen, 0, 1, math.MaxInt32),
	}
	return p, c.err
}

// DecodeMarkUsed decodes the params of nonce_markUsed.
func DecodeMarkUsed(params []byte) (MarkUsedParams, *Error) {
	var given struct {
		Signer  text        `json:"signer"`
		Nonce   number      `json:"nonce"`
		TxHash  text        `json:"txHash"`
		Attempt number      `json:"attempt"`
		Guard   *guardGiven `json:"guard"`
		// By name only.
		Principal text `json:"principal"`
		MarkAny   bool `json:"markAny"`
	}
	c := checker{bind(params, &given, "signer", "nonce", "txHash", "attempt", "guard")}
	p := MarkUsedParams{
		Signer:  c.needText("signer", given.Signer),
		Nonce:   c.needNumber("nonce", given.Nonce),
		TxHash:  c.notEmpty("txHash", given.TxHash),
		Attempt: c.between("attempt", given.Attempt, 1, 1, math.MaxInt64),
		Guard:   c.guard(given.Guard),

		Principal: c.notEmpty("principal", given.Principal), MarkAny: given.MarkAny,
	}
	return p, c.err
}

// DecodeMarkRecyclable decodes the params of nonce_markRecyclable.
func DecodeMarkRecyclable(params []byte) (MarkRecyclableParams, *Error) {
	var given struct {
		Signer  text        `json:"signer"`
		Nonce   number      `json:"nonce"`
		Reason  text        `json:"reason"`
		Attempt number      `json:"attempt"`
		Guard   *guardGiven `json:"guard"`
		Unsent  bool        `json:"unsent"`
		// By name only.
		Forwarded bool `json:"forwarded"`
		Keep      bool `json:"keep"`
		TxHash    text `json:"txHash"`
		Principal text `json:"principal"`
		MarkAny   bool `json:"markAny"`
	}
	c := checker{bind(params, &given, "signer", "nonce", "reason", "attempt", "guard", "unsent")}
	p := MarkRecyclableParams{
		Signer:  c.needText("signer", given.Signer),
		Nonce:   c.needNumber("nonce", given.Nonce),
		Reason:  given.Reason.value,
		Attempt: c.between("attempt", given.Attempt, 1, 1, math.MaxInt64),
		Guard:   c.guard(given.Guard),
		Unsent:  given.Unsent,

		Forwarded: given.Forwarded, Keep: given.Keep, TxHash: c.notEmpty("txHash", given.TxHash),
		Principal: c.notEmpty("principal", given.Principal), MarkAny: given.MarkAny,
	}
	if p.Keep && !p.Forwarded {
		c.refuse("keep", "is for transactions that were forwarded")
	}
	return p, c.err
}

// DecodeMarkSigned decodes the params of nonce_markSigned.
func DecodeMarkSigned(params []byte) (MarkSignedParams, *Error) {
	var given struct {
		Signer  text        `json:"signer"`
		Nonce   number      `json:"nonce"`
		TxHash  text        `json:"txHash"`
		Attempt number      `json:"attempt"`
		Guard   *guardGiven `json:"guard"`
		// By name only.
		Forwarded bool   `json:"forwarded"`
		Take      bool   `json:"take"`
		Over      text   `json:"over"`
		MaxOpen   number `json:"maxOpen"`
		Principal text   `json:"principal"`
		MarkAny   bool   `json:"markAny"`
	}
	c := checker{bind(params, &given, "signer", "nonce", "txHash", "attempt", "guard")}
	first := int64(1)
	if given.Forwarded {
		first = 0
	}
	p := MarkSignedParams{
		Signer:  c.needText("signer", given.Signer),
		Nonce:   c.needNumber("nonce", given.Nonce),
		TxHash:  c.needText("txHash", given.TxHash),
		Attempt: c.between("attempt", given.Attempt, first, first, math.MaxInt64),
		Guard:   c.guard(given.Guard),

		Forwarded: given.Forwarded, Take: given.Take, Over: c.notEmpty("over", given.Over), MaxOpen: c.between("maxOpen", given.MaxOpen, 0, 1, math.MaxInt32),
		Principal: c.notEmpty("principal", given.Principal), MarkAny: given.MarkAny,
	}
	switch {
	case p.Take && !p.Forwarded:
		c.refuse("take", "is for transactions that are forwarded")
	case p.Over != "" && !p.Forwarded:
		c.refuse("over", "is for transactions that are forwarded")
	case p.MaxOpen != 0 && !p.Take:
		c.refuse("maxOpen", "is for nonces that are taken")
	}
	return p, c.err
}

// DecodeExtend decodes the params of nonce_extend.
func DecodeExtend(params []byte) (ExtendParams, *Error) {
	var given struct {
		Signer  text   `json:"signer"`
		Nonce   number `json:"nonce"`
		HoldMs  number `json:"holdMs"`
		Attempt number `json:"attempt"`
		// By name only.
		Principal text `json:"principal"`
		MarkAny   bool `json:"markAny"`
	}
	c := checker{bind(params, &given, "signer", "nonce", "holdMs", "attempt")}
	p := ExtendParams{
		Signer:  c.needText("signer", given.Signer),
		Nonce:   c.needNumber("nonce", given.Nonce),
		HoldMs:  c.needNumber("holdMs", given.HoldMs),
		Attempt: c.between("attempt", given.Attempt, 1, 1, math.MaxInt64),

		Principal: c.notEmpty("principal", given.Principal), MarkAny: given.MarkAny,
	}
	c.between("holdMs", given.HoldMs, 0, 1, math.MaxInt64)
	return p, c.err
}

// DecodeRepair decodes the params of nonce_repair.
func DecodeRepair(params []byte) (RepairParams, *Error) {
	var given struct {
		Signer    text   `json:"signer"`
		Nonce     number `json:"nonce"`
		HoldMs    number `json:"holdMs"`
		RequestID text   `json:"requestId"`
		Principal text   `json:"principal"` // by name only
	}
	c := checker{bind(params, &given, "signer", "nonce", "holdMs", "requestId")}
	p := RepairParams{
		Signer:    c.needText("signer", given.Signer),
		HoldMs:    c.between("holdMs", given.HoldMs, 0, 1, math.MaxInt64),
		RequestID: c.notEmpty("requestId", given.RequestID),

		Principal: c.notEmpty("principal", given.Principal),
	}
	if given.Nonce.given {
		p.Nonce = &given.Nonce.value
	}
	return p, c.err
}

// DecodeStatus decodes the params of nonce_status.
func DecodeStatus(params []byte) (StatusParams, *Error) {
	var given struct {
		Signer text `json:"signer"`
	}
	c := checker{bind(params, &given, "signer")}
	p := StatusParams{Signer: c.needText("signer", given.Signer)}
	return p, c.err
}

// DecodeList decodes the params of nonce_list.
func DecodeList(params []byte) (ListParams, *Error) {
	var given struct {
		Signer text   `json:"signer"`
		Status text   `json:"status"`
		From   number `json:"from"`
		Limit  number `json:"limit"`

		ChainOnly bool `json:"chainOnly"` // by name only
	}
	c := checker{bind(params, &given, "signer", "status", "from", "limit")}
	p := ListParams{
		Signer: c.needText("signer", given.Signer),
		Status: c.oneOf("status", given.Status, StatusHeld, StatusReleased, StatusConsumed, StatusUnknown),
		From:   given.From.value,
		Limit:  c.between("limit", given.Limit, DefaultListLimit, 1, MaxListLimit),

		ChainOnly: given.ChainOnly,
	}
	return p, c.err
}

// DecodeSetFloor decodes the params of nonce_setFloor.
func DecodeSetFloor(params []byte) (SetFloorParams, *Error) {
	var given struct {
		Signer    text   `json:"signer"`
		Floor     number `json:"floor"`
		Principal text   `json:"principal"` // by name only
	}
	c := checker{bind(params, &given, "signer", "floor")}
	p := SetFloorParams{
		Signer: c.needText("signer", given.Signer),
		Floor:  c.needNumber("floor", given.Floor),

		Principal: c.notEmpty("principal", given.Principal),
	}
	return p, c.err
}

// DecodeSubscribe decodes the params of nonce_subscribe: ["events"],
// ["events", {signers}], or {signers}.
func DecodeSubscribe(params []byte) (SubscribeParams, *Error) {
	var c checker
	filter, named := single(params)
	if !named || len(params) == 0 {
		var given struct {
			Topic  text `json:"topic"`
			Filter Raw  `json:"filter"`
		}
		c.err = bindOuter(params, &given, "topic", "filter")
		c.needText("topic", given.Topic)
		c.oneOf("topic", given.Topic, TopicEvents)
		filter = c.object("filter", given.Filter)
	}
	var given struct {
		Signers []text `json:"signers"`
	}
	if c.err == nil {
		c.err = bindObject(strict, filter, &given)
	}
	return SubscribeParams{Topic: TopicEvents, Signers: c.texts("signers", given.Signers)}, c.err
}

// DecodeUnsubscribe decodes the params of nonce_unsubscribe, the id of the
// subscription.
func DecodeUnsubscribe(params []byte) (string, *Error) {
	var given struct {
		ID text `json:"id"`
	}
	c := checker{bind(params, &given, "id")}
	id := c.needText("id", given.ID)
	return id, c.err
}

// DecodeNone refuses params for a method that takes none.
func DecodeNone(params []byte) *Error {
	var given struct{}
	return bind(params, &given)
}

// guardGiven is a Guard as a client gave it.
type guardGiven struct {
	Key        text   `json:"key"`
	IntervalMs number `json:"intervalMs"`
	Keep       bool   `json:"keep"`
}
