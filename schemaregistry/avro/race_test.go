//go:build race

package avro_test

// How much longer things may take under the race detector, and how often they are tried.
const (
	slowdown = 20
	tries    = 1
)
