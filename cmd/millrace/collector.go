package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// collector lets the heap grow by a percentage between collections, but a large heap no more than by an amount, down to
// the percentage that Go has by default: what a small heap trades for time would be a lot of memory for a large one.
type collector struct {
	percent int
	now     int
}

const (
	heapGrowth  = 128 << 20 // between two collections, of which larger heaps take no more
	leastGrowth = 100       // percent
)

// percentFor is the percentage for a heap of which so much is in use.
func (c *collector) percentFor(live uint64) int {
	if c.percent <= leastGrowth || live == 0 {
		return c.percent
	}
	return int(max(leastGrowth, min(uint64(c.percent), heapGrowth*100/live)))
}

// cycle has what waits for the next collection: a cleanup that comes with it.
type cycle struct{ of *collector }

// watch sets the percentage anew after every collection.
func (c *collector) watch() {
	runtime.AddCleanup(&cycle{c}, (*collector).collected, c)
}

// collected is called by the runtime after a collection, one call after the other.
func (c *collector) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if p := c.percentFor(live[0].Value.Uint64()); p < c.now*9/10 || p > c.now*11/10 {
		debug.SetGCPercent(p)
		c.now = p
	}
	c.watch()
}
