//go:build !race

package protobuf

const slowdown = 1
