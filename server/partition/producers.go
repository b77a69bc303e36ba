package partition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/storage"
)

const (
	// windowBatches is how many batches of a producer a partition remembers in order to recognise a
	// repeat. It is the number of requests a Kafka client keeps in flight.
	windowBatches = 5
	// maxProducers bounds the producers one partition remembers: about 25 MiB. To take up one more, the
	// forgottenAtOnce longest silent ones are forgotten, so that looking for them is paid once for many.
	maxProducers    = 100_000
	forgottenAtOnce = maxProducers / 100

	none = -1
)

// producers is the sequence state of one partition: what each producer wrote last.
//
// It is a fold over the batches of the log in order: apply is the only way in, so a state rebuilt
// from the log equals one kept up while writing, except that a snapshot keeps one batch a producer.
// check decides about a batch and changes nothing. It is owned by whoever holds the append slot.
type producers struct {
	entries map[int64]*producer
	// cut says that what a new entry begins with need not be its producer's first batch: the beginning of the
	// log is gone, or producers were forgotten.
	cut bool
	// txns follow from the entries and the log. They are guarded by the replica's mu once the state is in use.
	txns *transactions
}

// newProducers is the state of a log without producers.
func newProducers(cut bool) *producers { return &producers{cut: cut, txns: newTransactions()} }

// producer is what a partition knows of one producer id.
type producer struct {
	epoch            int16
	coordinatorEpoch int32
	lastTimestamp    int64 // of the newest batch, by its own clock
	seen             int64 // leader's clock when it was last touched; not in snapshots
	txnFirstOffset   int64 // none when no transaction is open
	marked           int64 // offset of its newest marker, none when there is none in memory; not in snapshots
	count            int   // of batches remembered; <= windowBatches
	cut              bool  // batches of this epoch before the remembered ones may have been written
	batches          [windowBatches]written
}

// written is one remembered batch.
type written struct {
	lastSequence int32
	offsetDelta  int32 // last offset minus first
	lastOffset   int64
	timestamp    int64 // largest of the batch
}

func (w written) firstOffset() int64 { return w.lastOffset - int64(w.offsetDelta) }

// stamp is the part of a batch header that sequence rules look at.
type stamp struct {
	producerID    int64
	epoch         int16
	first, last   int32 // sequences
	firstOffset   int64
	lastOffset    int64
	timestamp     int64
	transactional bool
	control       bool
	empty         bool // compaction has left no record
	marker        *record.EndTxnMarker
}

// stampOf reads the header of b. A named producer gives one sequence to a whole batch, any other one
// to each record.
func stampOf(b record.Batch) stamp {
	s := stamp{
		producerID:    b.ProducerID(),
		epoch:         b.ProducerEpoch(),
		first:         b.BaseSequence(),
		firstOffset:   b.BaseOffset(),
		lastOffset:    b.LastOffset(),
		timestamp:     b.MaxTimestamp(),
		transactional: b.IsTransactional(),
		control:       b.IsControl(),
		empty:         b.Count() == 0,
	}
	if s.control {
		if m, ok := b.EndTxnMarker(); ok {
			s.marker = &m
		}
	}
	s.last = s.first
	if s.first != none && !ktag.IsNamed(s.producerID) {
		s.last = record.AddSequence(s.first, b.LastOffsetDelta())
	}
	return s
}

// SequenceError says that a batch does not follow the last one of its producer.
type SequenceError struct {
	Producer      int64
	Got, Expected int32
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("sequence %d of producer %d is out of order: expected %d", e.Got, e.Producer, e.Expected)
}

// PassedOverError says that a batch of a named producer was not written, and that a later one was.
type PassedOverError struct {
	Producer  int64
	Got, Last int32
}

func (e *PassedOverError) Error() string {
	return "a later request of this producer was stored before it; this one was not"
}

// FencedError says that a producer with a newer epoch has written.
type FencedError struct {
	Producer     int64
	Got, Current int16
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("epoch %d of producer %d is fenced by epoch %d", e.Got, e.Producer, e.Current)
}

// repeat is what is known of a batch that was written before.
type repeat struct {
	written
	remembered bool // false: older than the window, so its offsets are forgotten
}

// terms are what a batch is checked by beside its own header.
type terms struct {
	strict      bool // no gaps in the sequences of a named producer
	unsequenced bool // a coordinator's: sequences are not checked
	guarded     bool // its producer may begin its transaction on this partition
}

// check applies the rules of sequences and transactions to a batch, before it is written. It answers a repeat when an
// earlier attempt wrote the batch.
func (p *producers) check(s stamp, by terms) (*repeat, error) {
	e := p.entries[s.producerID]
	if e != nil && s.epoch < e.epoch {
		return nil, &FencedError{Producer: s.producerID, Got: s.epoch, Current: e.epoch}
	}
	var (
		rep      *repeat
		disorder error
	)
	switch {
	case by.unsequenced:
	case ktag.IsNamed(s.producerID):
		rep, disorder = e.checkNamed(s, by.strict)
	default:
		rep, disorder = e.checkCounted(s)
	}
	open := e != nil && e.txnFirstOffset != none
	switch {
	case rep != nil:
		return rep, nil
	case s.transactional && !by.guarded && !(open && s.epoch == e.epoch):
		return nil, ErrTxnState
	case disorder != nil:
		return nil, disorder
	case !s.transactional && open:
		return nil, errOpenTransaction
	case s.transactional && !open && p.txns.open >= maxOpenTransactions:
		return nil, ErrTxnCrowded
	}
	return nil, nil
}

// checkCounted is Kafka's rule: sequences count records and have no gaps. e is nil for a producer
// that is new, or forgotten: then any sequence is taken, as its earlier ones may have expired. But a transaction
// begins in an epoch of its own, with 0.
func (e *producer) checkCounted(s stamp) (*repeat, error) {
	if e == nil && !s.transactional {
		return nil, nil
	}
	if e == nil || s.epoch != e.epoch {
		if s.first != 0 {
			return nil, &SequenceError{Producer: s.producerID, Got: s.first, Expected: 0}
		}
		return nil, nil
	}
	for _, w := range e.batches[:e.count] {
		if w.lastSequence == s.last && record.SubSequence(w.lastSequence, w.offsetDelta) == s.first {
			return &repeat{written: w, remembered: true}, nil
		}
	}
	next := int32(0)
	if e.count > 0 && e.newest().lastSequence != none {
		next = record.AddSequence(e.newest().lastSequence, 1)
	}
	if s.first != next {
		return nil, &SequenceError{Producer: s.producerID, Got: s.first, Expected: next}
	}
	return nil, nil
}

// checkNamed is the rule of named producers: sequences count requests to the topic, so a partition
// sees them with gaps unless it is the only one. What is missing between the batches it remembers was never
// written, so it is no repeat. Sequences never wrap: a producer that has used up its own goes on with the next
// epoch.
func (e *producer) checkNamed(s stamp, strict bool) (*repeat, error) {
	if e == nil || s.epoch != e.epoch || e.count == 0 {
		if strict && s.first != 0 {
			return nil, &SequenceError{Producer: s.producerID, Got: s.first, Expected: 0}
		}
		return nil, nil
	}
	last := e.newest().lastSequence
	if (s.first == none) != (last == none) { // within one transaction: of a repeat nothing would be known
		return nil, &SequenceError{Producer: s.producerID, Got: s.first, Expected: last + 1}
	}
	if s.first == none || s.first > last {
		if strict && s.first != last+1 {
			return nil, &SequenceError{Producer: s.producerID, Got: s.first, Expected: last + 1}
		}
		return nil, nil
	}
	for _, w := range e.batches[:e.count] {
		if w.lastSequence == s.first {
			return &repeat{written: w, remembered: true}, nil
		}
	}
	if e.cut && s.first < e.batches[0].lastSequence {
		return &repeat{written: *e.newest()}, nil
	}
	return nil, &PassedOverError{Producer: s.producerID, Got: s.first, Last: last}
}

// change is what a batch does to its producer's transaction.
type change struct {
	producerID int64
	begins     int64 // the first offset of one that it begins, else none
	ended      int64 // the first offset of one that it ends, else none
	marker     int64 // its own offset then
	aborted    bool
}

// apply takes up a batch that is in the log, by whichever way it came there. now is the leader's
// clock in milliseconds. What it does to transactions is left to the caller.
func (p *producers) apply(s stamp, now int64) (c change) {
	c = change{producerID: s.producerID, begins: none, ended: none}
	if s.producerID < 0 {
		return c
	}
	e := p.entries[s.producerID]
	if e == nil {
		if len(p.entries) >= maxProducers {
			p.forgetOldest()
		}
		e = &producer{epoch: s.epoch, coordinatorEpoch: none, txnFirstOffset: none, marked: none, cut: p.cut}
		if p.entries == nil {
			p.entries = make(map[int64]*producer)
		}
		p.entries[s.producerID] = e
	}
	if e.epoch != s.epoch {
		e.epoch, e.count, e.cut = s.epoch, 0, false
	}
	e.lastTimestamp, e.seen = s.timestamp, now
	if s.control {
		if s.marker != nil {
			c.ended, c.marker, c.aborted = e.txnFirstOffset, s.lastOffset, s.marker.Type == record.ControlAbort
			e.coordinatorEpoch, e.txnFirstOffset, e.marked = s.marker.CoordinatorEpoch, none, s.lastOffset
		}
		return c
	}
	e.push(written{
		lastSequence: s.last,
		offsetDelta:  int32(s.lastOffset - s.firstOffset),
		lastOffset:   s.lastOffset,
		timestamp:    s.timestamp,
	})
	if s.transactional && e.txnFirstOffset == none && !s.empty {
		e.txnFirstOffset, c.begins = s.firstOffset, s.firstOffset
	}
	return c
}

// fold is apply where nobody else knows of the state yet. It gives the transaction that was aborted, if one was.
func (p *producers) fold(b record.Batch, now int64) (t storage.AbortedTxn, aborted bool) {
	c := p.apply(stampOf(b), now)
	if c.begins != none {
		p.txns.begin(c.begins)
	}
	if c.ended == none {
		return t, false
	}
	t = p.txns.aborted(c)
	p.txns.end(c.ended, c.marker)
	return t, c.aborted
}

// push remembers w as the newest batch and forgets the oldest when the window is full.
func (e *producer) push(w written) {
	if e.count == windowBatches {
		copy(e.batches[:], e.batches[1:])
		e.count--
		e.cut = true
	}
	e.batches[e.count] = w
	e.count++
}

func (e *producer) newest() *written { return &e.batches[e.count-1] }

// lastOffset is the offset of its newest record, none if only a marker is left of it.
func (e *producer) lastOffset() int64 {
	if e.count == 0 {
		return none
	}
	return e.newest().lastOffset
}

// expire forgets the producers that were silent for longer than lifetime, both in milliseconds, by
// their own timestamps and by the leader's clock. The second keeps a producer that writes old
// timestamps; the first is all that is left after a restart, when every producer counts as just seen.
func (p *producers) expire(now, lifetime int64) (removed int) {
	for id, e := range p.entries {
		if e.txnFirstOffset == none && now-max(e.lastTimestamp, e.seen) >= lifetime {
			delete(p.entries, id)
			p.cut = true // it may come back
			removed++
		}
	}
	return removed
}

// forgetOldest makes room for new producers. It goes by offsets alone, so that every replica and every replay of the
// log forgets the same ones. Producers with an open transaction stay.
func (p *producers) forgetOldest() {
	byAge := make([]int64, 0, len(p.entries))
	for id, e := range p.entries {
		if e.txnFirstOffset == none {
			byAge = append(byAge, id)
		}
	}
	slices.SortFunc(byAge, func(a, b int64) int {
		return cmp.Or(cmp.Compare(p.entries[a].lastOffset(), p.entries[b].lastOffset()), cmp.Compare(a, b))
	})
	for _, id := range byAge[:min(forgottenAtOnce, len(byAge))] {
		delete(p.entries, id)
	}
	p.cut = true
}

// ids lists the producers in ascending order.
func (p *producers) ids() []int64 { return slices.Sorted(maps.Keys(p.entries)) }
