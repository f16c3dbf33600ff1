// Package fasttest is an in-memory nonce.Fast for tests: the rules of the interface
// written down as plainly as possible, and a flush worker that runs when it is told
// to.
//
// A Server is one life of one Redis; a Client is how one node reaches one, with the
// faults that a test arms. It promises to be obviously right and to fail on demand.
// It promises neither durability nor speed. It starts no goroutine.
package fasttest
