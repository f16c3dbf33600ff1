//go:build unix

// Package bench measures the gateway beside its reference servers on one machine.
//
// It promises: a ratio is of two measurements of the same round, which follow one
// another; every second round goes backwards, so that what drifts favours nobody;
// each measurement begins on a fresh store (or on the filled one it asks for) with
// nothing of the one before left to be written back; a measurement in which
// nothing was acknowledged, or anything failed, makes its rows void and is never a
// figure; no process and no file is left, however the bench ends.
//
// It does not promise that figures of two machines, or of two times of one shared
// machine, can be compared; ratios can, with care.
//
// A [Report] holds scenes and rows. A scene is a set of sides that are measured in
// alternation: a server, a load and what its store holds. A row is a figure of one
// side over that of another, or a figure alone, with its target if it has one.
//
// Everything runs in the caller's goroutine; the load and the private servers own
// goroutines while they run.
package bench
