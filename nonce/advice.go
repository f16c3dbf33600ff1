package nonce

import "context"

// Advice is something about a store's server that an operator should change, or know.
type Advice struct {
	ID     string // the same as long as it is so
	Urgent bool   // acknowledged nonces may be lost, or requests fail
	What   string
	Why    string // it matters
	Do     string
}

// Adviser is a store that can be looked over. What it cannot read is advice, too.
type Adviser interface {
	Advise(ctx context.Context) []Advice
}
