// Package history keeps what clients of a gateway saw, and judges it.
//
// A [History] is a list of calls, each with the moments it began and ended, what was asked and what came of it: it happened, was
// refused, or is unknown. Beside the calls there are looks at the signers' rows while the clients worked ([Sample]) and all that
// was stored once everything was quiet ([Final]).
//
// [Check] judges it twice. The rules (calls.go, stored.go) are properties that each take one pass over the calls, such
// as that no nonce has two live holds. The model (model.go, step.go) is the state machine of one signer as a client may know it;
// porcupine looks for an order of that signer's calls, between their beginnings and ends, in which the machine gives the answers
// that were given. A call of which nobody knows whether it happened is judged both ways: a mark or a floor may take effect at any
// time from its beginning on, or never; an allocate is there when the stored rows show hand-outs that nobody was told of, each of
// which then takes place at some time.
//
// What is promised: a history that a gateway as its guarantees describe it can produce is never called wrong. What is not: that
// every fault shows. A fault must reach an answer or a row.
//
// The package has no goroutines of its own and does no I/O but [History.Save], [Load] and [Report.SavePictures].
package history
