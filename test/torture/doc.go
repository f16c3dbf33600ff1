//go:build unix

// Package torture runs gateways as real processes on a real PostgreSQL, breaks
// things while clients work, and lets package history judge what the clients saw.
//
// A run ([Run]) is a cluster on an [Axis], a few clients that write down every call, and one or two faults ([Fault]). A campaign
// ([Campaign]) breaks what the table of faults says; [Planted] has runs with gateways that are known to be wrong. docs/torture.md says
// what runs on each axis, and how it is judged.
//
// Nothing here is part of the gateway: its faults come from outside, and what is planted, is wrong about its clock or forgets what
// was not synced is compiled in by go build -overlay from copies of the sources with checked replacements ([gateway.Patch]).
//
// Everything started here ends with the process that started it (packages guarded and pgtest),
// and a run waits for all of its goroutines.
package torture
