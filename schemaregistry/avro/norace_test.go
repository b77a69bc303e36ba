//go:build !race

package avro_test

const slowdown = 1
