package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// gcPercent is how much the heap may grow before it is collected, in per cent of
// what is alive. A gateway at work allocates much that is garbage at once, and a
// collection marks the stacks of all connections, so fewer collections are worth
// the memory they take meanwhile. GOGC overrules it.
const gcPercent = 200

// What the returner of memory goes by.
const (
	returnInterval = 3 * time.Second
	quietBytes     = 1 << 20  // allocated in one interval at most: no client is being served, or hardly any
	worthBytes     = 16 << 20 // free or garbage: below it nothing is gained
)

// memory returns to the system what the heap does not need any more once the
// gateway has gone quiet. The runtime alone keeps room for the next burst: after
// eight thousand connections have come and are idle, as much again as they need.
type memory struct {
	read func() usage
	free func()

	allocated uint64 // up to the last look
	returned  uint64 // allocated up to the last return
}

// usage is what the runtime says of its memory, in bytes.
type usage struct {
	allocated uint64 // since the start
	spare     uint64 // garbage that was not collected, and free memory the system does not have back
}

// openMemory sets the garbage collector and starts the returner.
func (a *app) openMemory(context.Context) error {
	if os.Getenv("GOGC") == "" {
		previous := debug.SetGCPercent(gcPercent)
		a.onStop("garbage collector", func(context.Context) error { debug.SetGCPercent(previous); return nil })
	}
	m := memory{read: readUsage, free: debug.FreeOSMemory}
	a.every("memory", returnInterval, func(context.Context) { m.look() })
	return nil
}

// look returns memory if nothing much was allocated since the last look, but
// something was since the last return, and it is worth a collection.
func (m *memory) look() {
	u := m.read()
	quiet := u.allocated-m.allocated < quietBytes
	m.allocated = u.allocated
	if !quiet || u.spare < worthBytes || u.allocated-m.returned < worthBytes {
		return
	}
	m.free()
	m.returned = u.allocated
}

// readUsage asks the runtime. The live heap is that of the last collection, so
// what the objects take beyond it is garbage, or new.
func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	v := func(i int) uint64 { return samples[i].Value.Uint64() }
	garbage := v(2) - min(v(2), v(3))
	return usage{allocated: v(0), spare: v(1) + garbage}
}
