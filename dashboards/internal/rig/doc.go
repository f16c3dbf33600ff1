//go:build unix

// Package rig puts gateways under a small load and lets a Prometheus scrape them,
// for the tests of the dashboards and for their pictures.
//
// It promises that nothing it started outlives the guarded.Room it was started
// in, or for PostgreSQL this process, and that what has an end in order ends in order by Stop. It does not
// promise numbers worth a comparison: the load is there to make each metric move,
// on a machine that does other things.
//
// A Load and a Chain own their goroutines until their Stop; the rest has none.
package rig
