package schemaregistry

import (
	"runtime"

	"millrace/schemaregistry/schema"
)

// heavyBytes is the text from which on work with a schema counts as heavy: some milliseconds, and many times the memory
// of the text.
const heavyBytes = 16 << 10

// heavies bounds how much heavy work goes on at once, so that it leaves processors and memory to all others.
type heavies chan struct{}

func newHeavies() heavies { return make(heavies, max(1, runtime.GOMAXPROCS(0)/2)) }

// begin waits for a turn to work with so many bytes of text, and gives what ends it. Work that has begun waits for
// nothing else, so every turn comes.
func (h heavies) begin(bytes int) (end func()) {
	if bytes < heavyBytes {
		return func() {}
	}
	h <- struct{}{}
	return func() { <-h }
}

// textBytes is the length of a text with all that it depends on.
func textBytes(text string, deps []schema.Dependency) int {
	n := len(text)
	for i := range deps {
		n += len(deps[i].Text)
	}
	return n
}
