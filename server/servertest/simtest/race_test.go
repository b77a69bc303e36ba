//go:build race

package simtest_test

const race = true
