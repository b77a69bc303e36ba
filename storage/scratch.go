package storage

// scratchSize is enough for the batch headers between two index entries, and for the last step of a
// search in an index file. Recovery reads everything past the recovery point, in larger pieces.
const (
	scratchSize = 8 << 10
	largeSize   = 1 << 20
)

// scratch is a bounded free list of buffers of one size. It keeps its memory through garbage collections:
// getting new pages from the kernel costs more than all that is done with them.
type scratch struct {
	free chan []byte
	size int
}

func newScratch(buffers, size int) scratch { return scratch{make(chan []byte, buffers), size} }

func (s scratch) get() []byte {
	select {
	case b := <-s.free:
		return b
	default:
		return make([]byte, s.size)
	}
}

func (s scratch) put(b []byte) {
	select {
	case s.free <- b:
	default:
	}
}
