//go:build race

package protobuf

// slowdown is what the race detector costs.
const slowdown = 20
