package nonce

// Kind says what a Request asks for.
type Kind uint8

// The kinds.
const (
	KindAllocate Kind = iota + 1
	KindMarkUsed
	KindMarkRecyclable
	KindSetFloor
	KindStatus
	KindList
	KindExtend     // a running hold gets a new deadline
	KindMarkSigned // a hash is recorded before its transaction is sent
	KindRepair     // the nonce that blocks others is handed out, whatever its state
)

// String returns the op label of metrics and logs.
func (k Kind) String() string {
	switch k {
	case KindAllocate:
		return "allocate"
	case KindMarkUsed:
		return "mark_used"
	case KindMarkRecyclable:
		return "mark_recyclable"
	case KindSetFloor:
		return "floor"
	case KindStatus:
		return "status"
	case KindList:
		return "list"
	case KindExtend:
		return "extend"
	case KindMarkSigned:
		return "mark_signed"
	case KindRepair:
		return "repair"
	}
	return "unknown"
}

// MaxCount is the largest count of one allocate.
const MaxCount = 256
