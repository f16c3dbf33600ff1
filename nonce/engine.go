package nonce

// ReasonInDoubt is the reason of a RELEASED nonce that a loss of Redis left in doubt.
const ReasonInDoubt = "in_doubt"
