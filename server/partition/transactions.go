package partition

import (
	"math"
	"sort"

	"millrace/storage"
)

const (
	// maxOpenTransactions bounds the transactions that are open on one partition: producers in one are never
	// forgotten, so there must be others to forget.
	maxOpenTransactions = maxProducers / 2

	// unknownStable is the first unstable offset of a partition whose transactions have not been looked for.
	unknownStable = -1
	// allStable is the first unstable offset where everything is stable.
	allStable = math.MaxInt64
)

// transactions are those of a partition that hold back its last stable offset: each that is open, and each that has
// ended by a marker which is not known to be committed. It is a list by first offset, which is the order in which they
// begin: a transaction begins at the end of the log.
type transactions struct {
	spans []span
	// firstOpen is the place of the first that is open, len(spans) if none is.
	firstOpen int
	open      int // how many are open
	crowded   int // the length from which to look for spans that do not count any more
	// held is an offset that nothing from there on counts as stable, allStable if there is none: a follower is about to
	// learn of transactions.
	held int64
}

// span is a transaction's part of the log.
type span struct {
	first  int64
	marker int64 // none while it is open
}

func newTransactions() *transactions { return &transactions{held: allStable, crowded: minCrowded} }

const minCrowded = 64

// begin takes up a transaction whose data begins at the end of the log.
func (t *transactions) begin(first int64) {
	t.spans = append(t.spans, span{first, none})
	t.open++
}

// undo takes back the last begin.
func (t *transactions) undo() {
	t.spans = t.spans[:len(t.spans)-1]
	t.open--
}

// end takes note of the marker that ends a transaction.
func (t *transactions) end(first, marker int64) {
	if i := t.find(first); i < len(t.spans) && t.spans[i] == (span{first, none}) {
		t.spans[i].marker = marker
		t.open--
		t.skipEnded()
	}
}

func (t *transactions) skipEnded() {
	for t.firstOpen < len(t.spans) && t.spans[t.firstOpen].marker != none {
		t.firstOpen++
	}
}

func (t *transactions) find(first int64) int {
	return sort.Search(len(t.spans), func(i int) bool { return t.spans[i].first >= first })
}

// commit forgets the transactions whose marker lies below the high watermark.
func (t *transactions) commit(hw int64) {
	n := 0
	for n < t.firstOpen && t.spans[n].marker < hw {
		n++
	}
	t.spans, t.firstOpen = t.spans[n:], t.firstOpen-n
	if len(t.spans) < t.crowded {
		return
	}
	kept := make([]span, 0, len(t.spans)) // without those that are done behind one that is open
	for _, s := range t.spans {
		if s.marker == none || s.marker >= hw {
			kept = append(kept, s)
		}
	}
	t.spans, t.crowded = kept, max(2*len(kept), minCrowded)
	t.firstOpen = 0
	t.skipEnded()
}

// unstable is the first offset that is not decided, allStable if there is none.
func (t *transactions) unstable() int64 {
	if len(t.spans) == 0 {
		return t.held
	}
	return min(t.held, t.spans[0].first)
}

// stableBehind is the last stable offset right behind a marker that ends the transaction which began at first.
func (t *transactions) stableBehind(first, marker int64) int64 {
	for i := t.firstOpen; i < len(t.spans); i++ {
		if s := t.spans[i]; s.marker == none && s.first != first {
			return s.first
		}
	}
	return marker + 1
}

// aborted is the index entry of a transaction that is about to end, should its marker abort it.
func (t *transactions) aborted(c change) storage.AbortedTxn {
	return storage.AbortedTxn{
		ProducerID: c.producerID, FirstOffset: c.ended, LastOffset: c.marker, LastStable: t.stableBehind(c.ended, c.marker),
	}
}
