package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/internal/ktag"
	"millrace/record"
)

// AnyPartition leaves the choice of the partition to the Sender.
const AnyPartition int32 = -1

// batchTarget is where a Sender starts a further batch for a partition: just below the default of
// max.message.bytes, so that a large request is not refused for the size of its sum.
const batchTarget = 1_000_000

// How long the first records of a transaction wait for the end of the producer's last one. The coordinator waits too.
const (
	txnPause = 20 * time.Millisecond
	txnWaits = 20
)

// NamedProducer is a producer that a client named, and which of its requests this one is.
type NamedProducer struct {
	Name  string
	Epoch int16
	Seq   int32
	Once  bool // this is the only request of the producer's life, so that no other can be missing
	// Txn is the producer of a transaction in place of one that Name and Epoch lead to. Name, its transactional id,
	// goes on to place records.
	Txn *TxnProducer
}

// id is the producer's id in batches.
func (np *NamedProducer) id() int64 {
	if np.Txn != nil {
		return np.Txn.ProducerID
	}
	return ktag.NamedProducerID(np.Name)
}

// SendOptions say how a Sender's records are to be stored.
type SendOptions struct {
	Acks     int16
	Timeout  time.Duration  // how long the leader waits for AcksAll
	Producer *NamedProducer // nil for none
	Expected *int64         // append only at this log end offset; needs all records in one partition
	// Txn has the records belong to a transaction. It goes with a Producer of its own, whose requests can be
	// repeated, or with none.
	Txn *TxnProducer
	// CheckAll holds what would go in several batches against the topic's limits first, so that one bad record
	// leaves none stored. What goes in one batch needs no check: its leader takes all of it or nothing.
	CheckAll bool
}

// Sender places the records of one request into partitions, builds the batches and sends them.
//
// Records are placed by their explicit partition; else by the murmur2 hash of their key; else, for a
// named producer, by the hash of its name, so that a retry lands where the first try did, also after partitions
// were added if all records are of this kind; else all of the request go to the one partition whose turn it is.
// All records of a partition go in one batch and
// all batches in one Produce request, unless that batch would be too large: then the partition's records
// go in several batches one after the other, and stop at the first that fails. With a NamedProducer or
// an expected offset there is never more than one batch a partition.
//
// A Sender is used by one goroutine and ends with Release.
type Sender struct {
	client *Client
	topic  *Topic
	arena  *record.Arena
	opts   SendOptions
	hint   int

	records   []record.Record
	asked     []int32 // the partition that was asked for records[i], of a named producer
	partition []int32 // of records[i]
	size      []int32 // bound of records[i] within a batch
	waiting   bool    // pieces were refused since the producer's last transaction is still ending
	waits     int     // how often they were
	keyless   int32   // the partition of records without a key, AnyPartition until one needs it
	byName    int     // how many records a producer's name placed
	one       bool    // a partition's records go in one batch
	checked   bool    // all records were held against the topic's limits

	order   []int32 // record numbers by partition, then by number
	start   []int32 // order[start[p]:start[p+1]] are partition p's; scratch of group
	pieces  []piece
	results []int32 // the piece of records[i]
	delta   []int32 // the place of records[i] in its piece

	builder record.Builder
	batches []Batch
	live    []int // the pieces of the current round
	answers []ProduceResult
	told    []BatchResult
}

// piece is a run of one partition's records that goes into one batch.
type piece struct {
	partition int32
	lo, hi    int // order[lo:hi]
	sent      bool
	result    ProduceResult
	err       error
}

// NewSender starts a request's worth of records for topic. Batches are built in arena's memory (nil: the
// heap). bytesHint is the expected size of all records, for a fair choice of partitions.
func (c *Client) NewSender(topic *Topic, arena *record.Arena, bytesHint int, o SendOptions) *Sender {
	s, _ := c.senders.Get().(*Sender)
	if s == nil {
		s = &Sender{}
	}
	s.client, s.topic, s.arena, s.hint, s.opts = c, topic, arena, bytesHint, o
	s.keyless, s.byName, s.checked, s.waits = AnyPartition, 0, false, 0
	s.one = o.Producer != nil || o.Expected != nil
	return s
}

// Release gives the Sender back; nothing of it may be used afterwards.
func (s *Sender) Release() {
	c := s.client
	if cap(s.records) > 16_384 {
		return // one large request must not keep its memory for ever
	}
	clear(s.records)
	clear(s.pieces)
	clear(s.batches)
	clear(s.answers)
	clear(s.told)
	s.records, s.partition, s.size, s.asked = s.records[:0], s.partition[:0], s.size[:0], s.asked[:0]
	s.pieces, s.batches, s.answers = s.pieces[:0], s.batches[:0], s.answers[:0]
	s.client, s.topic, s.arena, s.opts = nil, nil, nil, SendOptions{}
	s.builder.Reset([]byte{})
	c.senders.Put(s)
}

// Len is the number of records added.
func (s *Sender) Len() int { return len(s.records) }

// Add adds a record for the given partition, or AnyPartition. The record's bytes are not copied and must
// stay as they are until Send returns. An unknown partition is refused.
func (s *Sender) Add(r record.Record, partition int32) error {
	asked := partition
	if partition == AnyPartition {
		partition = s.place(&r)
	}
	if err := s.topic.Has(partition); err != nil {
		return err
	}
	s.records = append(s.records, r)
	if s.opts.Producer != nil {
		s.asked = append(s.asked, asked)
	}
	s.partition = append(s.partition, partition)
	s.size = append(s.size, int32(record.RecordSize(&s.records[len(s.records)-1])))
	return nil
}

func (s *Sender) place(r *record.Record) int32 {
	n := int32(len(s.topic.Partitions))
	switch {
	case n <= 1:
		return 0
	case r.Key != nil:
		return record.KeyPartition(r.Key, n)
	case s.opts.Producer != nil:
		s.byName++
		if s.keyless == AnyPartition {
			places := s.opts.Producer.places(n)
			s.keyless = places[len(places)-1]
		}
	case s.keyless == AnyPartition:
		s.keyless = s.topic.placeKeyless(s.hint)
	}
	return s.keyless
}

// placeKeyless is the partition for bytes more bytes of records without a key. A partition without a leader
// is passed over while another one has a leader.
func (t *Topic) placeKeyless(bytes int) int32 {
	n := int32(len(t.Partitions))
	first := t.sticky.Partition(n, bytes)
	for i := range n {
		if p := (first + i) % n; t.Partitions[p].Leader >= 0 {
			return p
		}
	}
	return first
}

// Partitions is how many partitions the records go to. It may be called before Send.
func (s *Sender) Partitions() int {
	distinct := make(map[int32]struct{})
	for _, p := range s.partition {
		distinct[p] = struct{}{}
	}
	return len(distinct)
}

// Send stores the records. The error is nil when every record has its own outcome, to be read from
// Record and Batches; it is not nil when nothing was sent at all.
func (s *Sender) Send(ctx context.Context) error {
	for try := 0; ; try++ {
		err := s.send(ctx)
		if try == recounts || !s.miscounted(err) {
			return err
		}
		if s.placeAnew(ctx) != nil {
			return err
		}
	}
}

// recounts is how often a request is placed anew because the topic got partitions meanwhile.
const recounts = 3

// miscounted says whether nothing was stored, by an error that nothing was sent for or by all batches' own, because the
// topic has another count of partitions.
func (s *Sender) miscounted(err error) bool {
	is := func(err error) bool {
		var f *KafkaError
		return errors.As(err, &f) && f.PartitionCount > 0
	}
	if err != nil || s.opts.Producer == nil || len(s.pieces) == 0 {
		return is(err)
	}
	return !slices.ContainsFunc(s.pieces, func(p piece) bool { return !is(p.err) })
}

// placeAnew places all records by the newest metadata of the topic.
func (s *Sender) placeAnew(ctx context.Context) error {
	topic, err := s.client.Renew(ctx, s.topic.Name)
	if err != nil {
		return err
	}
	s.topic, s.keyless, s.byName = topic, AnyPartition, 0
	for i := range s.records {
		if s.partition[i] = s.asked[i]; s.asked[i] == AnyPartition {
			s.partition[i] = s.place(&s.records[i])
		}
	}
	return nil
}

func (s *Sender) send(ctx context.Context) error {
	s.group()
	s.cut(batchTarget)
	if s.opts.Producer != nil && len(s.pieces) == 1 {
		if err := s.checkSequence(ctx, &s.pieces[0]); err != nil {
			return err
		}
	}
	if s.opts.CheckAll && len(s.pieces) > 1 {
		s.check(ctx)
	}
	for s.nextRound() {
		s.round(ctx)
		if s.waiting {
			s.waits++
			_ = sleep(ctx, txnPause) // the end of ctx does not give a produce up
		}
	}
	s.settle()
	return nil
}

// group orders the records by partition (a counting sort, so the order within a partition stays).
func (s *Sender) group() {
	n := len(s.records)
	s.order = slices.Grow(s.order[:0], n)[:n]
	s.start = slices.Grow(s.start[:0], len(s.topic.Partitions)+1)[:len(s.topic.Partitions)+1]
	clear(s.start)
	for _, p := range s.partition {
		s.start[p+1]++
	}
	for p := range s.topic.Partitions {
		s.start[p+1] += s.start[p]
	}
	// start[p] is now where p's records begin; it moves to where they end, which is where p+1's began.
	for i, p := range s.partition {
		s.order[s.start[p]] = int32(i)
		s.start[p]++
	}
}

// cut makes pieces of at most so many bytes where there are several records, or one piece a partition.
func (s *Sender) cut(target int) {
	s.pieces = s.pieces[:0]
	bytes := 0
	for k, i := range s.order {
		p, size := s.partition[i], int(s.size[i])
		last := len(s.pieces) - 1
		if last < 0 || s.pieces[last].partition != p || !s.one && bytes+size > target {
			s.pieces = append(s.pieces, piece{partition: p, lo: k, hi: k})
			last++
			bytes = record.HeaderSize
		}
		s.pieces[last].hi = k + 1
		bytes += size
	}
}

// nextRound picks each partition's first piece that was not sent yet.
func (s *Sender) nextRound() bool {
	s.live = s.live[:0]
	for i := range s.pieces {
		if n := len(s.live); !s.pieces[i].sent && (n == 0 || s.pieces[s.live[n-1]].partition != s.pieces[i].partition) {
			s.live = append(s.live, i)
		}
	}
	return len(s.live) > 0
}

// round builds and sends one batch for each live piece.
func (s *Sender) round(ctx context.Context) {
	s.batches, s.waiting = s.batches[:0], false
	for _, i := range s.live {
		p := &s.pieces[i]
		s.batches = append(s.batches, Batch{
			Topic: s.topic, Partition: p.partition, Bytes: s.build(p), Expected: s.opts.Expected,
			Strict:  s.opts.Producer != nil && s.opts.Txn == nil && len(s.topic.Partitions) == 1,
			Counted: s.opts.Producer != nil,
		})
	}
	s.answers = slices.Grow(s.answers[:0], len(s.batches))[:len(s.batches)]
	req := ProduceRequest{Acks: s.opts.Acks, Timeout: s.opts.Timeout, Batches: s.batches}
	if s.opts.Txn != nil {
		req.Transaction = s.opts.Txn.ID
	}
	err := s.client.produceInto(ctx, &req, s.answers)
	for k := len(s.live) - 1; k >= 0; k-- { // from the end, since halve moves what lies behind
		i := s.live[k]
		p := &s.pieces[i]
		p.sent, p.err = true, err
		if err != nil {
			s.abandon(i, err)
			continue
		}
		p.result, p.err = s.answers[k], s.answers[k].Err
		switch {
		case p.err == nil:
		case errors.Is(p.err, kerr.ConcurrentTransactions) && s.waits < txnWaits:
			p.sent, s.waiting = false, true
		case tooLarge(p.err) && p.hi-p.lo > 1 && !s.one:
			s.split(ctx, i)
		default:
			s.locate(p)
			s.abandon(i, p.err)
		}
	}
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// locate turns the places in a piece's batch, where its error tells of records, into places among all records.
func (s *Sender) locate(p *piece) {
	var f *KafkaError
	if !errors.As(p.err, &f) {
		return
	}
	if tooLarge(f) && p.hi-p.lo == 1 {
		f.Records, f.Message = []RecordFault{{Message: f.Message}}, record.RefusedRecords(1)
	}
	f.Records = slices.DeleteFunc(f.Records, func(r RecordFault) bool {
		return r.Index < 0 || int(r.Index) >= p.hi-p.lo
	})
	for i := range f.Records {
		f.Records[i].Index = s.order[p.lo+int(f.Records[i].Index)]
	}
}

// build encodes one piece as a batch.
func (s *Sender) build(p *piece) record.Batch {
	size := record.HeaderSize
	for _, i := range s.order[p.lo:p.hi] {
		size += int(s.size[i])
	}
	s.builder.Reset(s.arena.Alloc(size)[:0])
	switch np, txn := s.opts.Producer, s.opts.Txn; {
	case txn != nil:
		s.builder.SetProducer(txn.ProducerID, txn.Epoch, s.txnSequence(p))
		s.builder.SetTransactional()
	case np != nil:
		s.builder.SetProducer(np.id(), np.Epoch, np.Seq)
	}
	for _, i := range s.order[p.lo:p.hi] {
		s.builder.Append(&s.records[i])
	}
	return s.builder.Build()
}

// txnSequence is the sequence of a piece that belongs to a transaction. Where sequences count records there is one
// Sender to a topic in a transaction, so it is the number of records before it.
func (s *Sender) txnSequence(p *piece) int32 {
	switch {
	case s.opts.Producer != nil:
		return s.opts.Producer.Seq
	case s.opts.Txn.ByRequest():
		return -1
	}
	first := p.lo
	for first > 0 && s.partition[s.order[first-1]] == p.partition {
		first--
	}
	return int32(p.lo - first)
}

// split replaces a piece that was refused for its size by smaller ones. If nothing was checked yet it was the only
// one, so that nothing is stored.
func (s *Sender) split(ctx context.Context, i int) {
	if s.opts.CheckAll && !s.checked && s.check(ctx) {
		return
	}
	p := s.pieces[i]
	mid := (p.lo + p.hi) / 2
	s.pieces[i] = piece{partition: p.partition, lo: p.lo, hi: mid}
	s.pieces = slices.Insert(s.pieces, i+1, piece{partition: p.partition, lo: mid, hi: p.hi})
}

// abandon gives up the pieces behind i of the same partition: order within it must hold.
func (s *Sender) abandon(i int, cause error) {
	for j := i + 1; j < len(s.pieces) && s.pieces[j].partition == s.pieces[i].partition; j++ {
		f := newFault(kerr.OperationNotAttempted, "", s.topic.Name, s.pieces[i].partition)
		f.Message = fmt.Sprintf("an earlier batch of this request was not stored: %v", cause)
		s.pieces[j].sent, s.pieces[j].err = true, f
	}
}

// settle notes for each record where its outcome is.
func (s *Sender) settle() {
	n := len(s.records)
	s.results = slices.Grow(s.results[:0], n)[:n]
	s.delta = slices.Grow(s.delta[:0], n)[:n]
	for k := range s.pieces {
		p := &s.pieces[k]
		for d, i := range s.order[p.lo:p.hi] {
			s.results[i], s.delta[i] = int32(k), int32(d)
		}
	}
}

// RecordResult is what became of one record.
type RecordResult struct {
	Partition int32
	Offset    int64 // -1 if it is not known
	Timestamp int64 // as stored, in milliseconds
	Err       error // nil, a *KafkaError, or ErrNoAnswer
}

// Record tells what became of record i, in the order of Add.
func (s *Sender) Record(i int) RecordResult {
	p := &s.pieces[s.results[i]]
	out := RecordResult{Partition: p.partition, Offset: -1, Timestamp: s.records[i].Timestamp, Err: p.err}
	if p.err != nil {
		out.Err = recordFault(p.err, int32(i))
		return out
	}
	if p.result.BaseOffset >= 0 && (p.result.Count < 0 || s.delta[i] < p.result.Count) {
		out.Offset = p.result.BaseOffset + int64(s.delta[i])
	}
	if p.result.AppendTime >= 0 {
		out.Timestamp = p.result.AppendTime
	}
	return out
}

// recordFault narrows a batch's error to record i when the cluster said more about it.
func recordFault(err error, i int32) error {
	var f *KafkaError
	if !errors.As(err, &f) {
		return err
	}
	for _, r := range f.Records {
		if r.Index == i && r.Message != "" {
			one := *f
			one.Message, one.Records = r.Message, nil
			return &one
		}
	}
	return err
}

// BatchResult is what became of one batch.
type BatchResult struct {
	Partition int32
	// Count, BaseOffset and Timestamp are what was stored; of a duplicate what its first request stored, all -1
	// if that is forgotten. The offset is also -1 with AcksNone.
	Count      int
	BaseOffset int64
	Timestamp  int64 // the greatest of its records
	Duplicate  bool
	Err        error // nil, a *KafkaError, or ErrNoAnswer
}

// Batches tells what became of each batch, by partition and then in order. The slice is the Sender's.
func (s *Sender) Batches() []BatchResult {
	out := slices.Grow(s.told[:0], len(s.pieces))[:len(s.pieces)]
	s.told = out
	for k := range s.pieces {
		p := &s.pieces[k]
		b := BatchResult{
			Partition: p.partition, Count: p.hi - p.lo, BaseOffset: p.result.BaseOffset,
			Timestamp: p.result.AppendTime, Duplicate: p.result.Duplicate, Err: p.err,
		}
		if b.Duplicate {
			b.Count = int(p.result.Count)
		} else if b.Timestamp < 0 || b.Err != nil {
			for _, i := range s.order[p.lo:p.hi] {
				b.Timestamp = max(b.Timestamp, s.records[i].Timestamp)
			}
		}
		if b.Err != nil {
			b.BaseOffset = -1
		}
		out[k] = b
	}
	return out
}
