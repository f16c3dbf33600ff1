//go:build unix

// Package sqlite tries hard to make a gateway on its embedded store lose or double
// something: it kills gateways, takes their power, tears the tail of their log,
// fills their disk and lets it fail, and judges by what clients were answered.
//
// A kill alone cannot show a missing fsync, because the operating system keeps what
// the process wrote. So the gateway under test is built with one more file
// (testdata/tracingvfs.go, added by go build -overlay and never part of another
// build), which stands between SQLite and the file system and writes down every
// change of a file and every sync. From this trace a [disk] knows, at each point,
// what a loss of power would certainly leave and what was only in a cache; it makes
// crash images in which any part of the latter survives, sector by sector, in any
// order, torn within a sector, with rubbish instead of the rest. The next gateway
// starts on such an image. Since the trace has a state for every moment, one run
// also yields many further images of moments at which nobody killed it.
//
// What was acknowledged by then is known without comparing clocks: a client notes
// how long the trace is before it sends and after it was answered. An answer that
// came when the trace had n bytes must survive in every image of n bytes or more.
//
// It assumes what SQLite does of the disk: a sync that succeeded holds, and a write
// harms no byte beside those written. A disk that lies about syncs loses
// acknowledged commits whatever a program does.
//
// All of a history follows from its seed but the interleaving of processes: the
// same seed repeats the faults, their order and the choice of what survives.
package sqlite
