// Package invariant stops the process when a promise that this code makes to itself is broken.
//
// A broken invariant means that going on could spread wrong data, so the check stays on in
// production: a stopped node is repaired by its replicas. Bad input, bad disks and bad peers are
// errors and never come here.
package invariant

import "fmt"

// Check panics with the formatted message when cond is false.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
