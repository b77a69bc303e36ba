package native

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/api"
	"millrace/client"
	"millrace/record"
)

// Bounds of the fetches behind one page.
const (
	minFetchBytes   = 16 << 10 // a partition's share of a fetch is not below this
	fetchPerRecord  = 1 << 10  // guess at a record's size, where the page is bounded by records
	maxPageFetches  = 1000     // over gaps; each but the last moved the reader on
	maxPageRefills  = 16       // to fill a page that already has records
	minOutputBuffer = 4 << 10
)

// A place is where a reader stands in one partition, and what the last fetch said of the partition.
type place struct {
	partition     int32
	next          int64
	highWatermark int64 // -1 before a fetch
	limit         int64 // the first offset that may not be read yet, -1 before a fetch
}

// hasMore says whether the partition is known to hold more for the reader.
func (p *place) hasMore() bool { return p.next < p.limit }

// output is an answer in the making, in memory of an arena.
type output struct {
	arena *record.Arena
	buf   []byte
}

// reserve makes room for n more bytes, so that appending them does not leave the arena.
func (o *output) reserve(n int) {
	if cap(o.buf)-len(o.buf) >= n {
		return
	}
	grown := o.arena.Alloc(max(2*cap(o.buf), len(o.buf)+n, minOutputBuffer))[:len(o.buf)]
	copy(grown, o.buf)
	o.buf = grown
}

// page is one finite answer: what is read into it, and how it came out.
type page struct {
	topic     *client.Topic
	partition int32 // or allPartitions
	query     *readQuery
	form      string // the media type
	places    []place
	arena     func() *record.Arena
	// append writes one record behind dst.
	append func(dst []byte, partition int32, r *record.Record) []byte
	watch  plainWatch // of the encoder that splices JSON, if one does
	// decoder is the encoder's; nil if it has none.
	decoder *decoder
	// between goes between records, after behind each of them.
	between, after string

	out     output
	records int
	bytes   int // of keys, values and headers
	full    bool
	next    string // the written position after the page
	hash    uint64 // of where the page starts and of the batches it was made from
}

// read fills the page. Data that exists is taken at once; only when there is none does it wait, as long as the
// query says, for records and for faults to pass. A fault that comes after some records ends the page before it: the
// next page will tell.
func (p *page) read(ctx context.Context, c *client.Client, s *scanner) error {
	p.hash = p.identity()
	deadline := time.Now().Add(p.query.wait)
	for fetches := 1; ; fetches++ {
		wait := time.Duration(0)
		if p.records == 0 && p.query.wait > 0 {
			wait = min(untilDeadline(deadline), sweepEvery)
		}
		moved, err := p.fetch(ctx, c, s, wait)
		if err == nil && !moved && wait == sweepEvery {
			p.grow(ctx, c)
		}
		switch {
		case err != nil && wait > 0 && ctx.Err() != nil:
			return nil // the server stops: the wait is over
		case err != nil && p.records == 0 && p.query.wait > 0 && mayPass(err) && time.Until(deadline) > firstRetry &&
			pause(ctx, firstRetry):
		case err != nil && p.records == 0:
			return err
		case err != nil || p.full || !p.wantsMore(fetches) || !moved && wait == 0:
			return nil
		}
	}
}

// mayPass says that a read which failed may succeed a little later, as when a leader is on the move.
func mayPass(err error) bool { return api.FromError(err).Fault.Retryable }

// grow takes in the partitions that the topic has got since the read began, from their starts. What it cannot learn
// now it may later, and what is wrong is for the next fetch to say.
func (p *page) grow(ctx context.Context, c *client.Client) {
	if p.partition != allPartitions {
		return
	}
	t, err := c.Topic(ctx, p.topic.Name, client.Refuse)
	if err != nil || t.ID != p.topic.ID || len(t.Partitions) <= len(p.places) {
		return
	}
	more := placesOf(t, allPartitions)[len(p.places):]
	if lookUp(ctx, c, t, more, client.Earliest, p.query.isolation) != nil {
		return
	}
	p.topic, p.places = t, append(p.places, more...)
	p.hash = p.identity()
}

// untilDeadline is how long to wait, in whole milliseconds as the cluster counts them; 0 when the time is over.
func untilDeadline(deadline time.Time) time.Duration {
	return max(time.Until(deadline)+time.Millisecond-1, 0).Truncate(time.Millisecond)
}

// wantsMore says whether a page that is not full is worth another fetch.
func (p *page) wantsMore(fetches int) bool {
	if p.records == 0 {
		return fetches < maxPageFetches
	}
	more := false
	for i := range p.places {
		more = more || p.places[i].hasMore()
	}
	return more && fetches < maxPageRefills && p.bytes < p.query.maxBytes/2
}

// fetch asks once for more, and takes it in. moved says that some partition's place has changed. A partition that
// cannot be read is told only when no other one gives records, so that it does not hide them; a place outside the
// log is told before anything is read.
func (p *page) fetch(ctx context.Context, c *client.Client, s *scanner, wait time.Duration) (moved bool, err error) {
	arena := p.arena()
	defer arena.Free()
	results, err := c.Fetch(record.WithArena(ctx, arena), p.request(wait))
	if err != nil {
		return false, err
	}
	for i := range results {
		if errors.Is(results[i].Err, kerr.OffsetOutOfRange) {
			at := p.placeOf(results[i].Partition)
			return false, fetchedOutOfRange(ctx, c, p.topic, *at, &results[i])
		}
	}
	for i := range results {
		at := p.placeOf(results[i].Partition)
		before := at.next
		fault := results[i].Err
		if isDamage(fault) {
			fault = p.unreadable(at, fault)
		}
		if fault == nil {
			at.saw(&results[i], p.query.isolation)
			if p.full {
				continue
			}
			fault = p.take(s, at, &results[i])
		}
		if err == nil {
			err = fault
		}
		moved = moved || at.next != before
	}
	return moved, err
}

// take takes in what was fetched of one partition.
func (p *page) take(s *scanner, at *place, r *client.FetchResult) error {
	p.out.reserve(len(r.Batches) + len(r.Batches)/4)
	var err error
	of := segment{batches: r.Batches, from: at.next, before: forever, aborted: r.Aborted}
	if p.watch.encoder != nil {
		p.watch.partition = at.partition
		of.watch = &p.watch
	}
	at.next, err = s.scan(of, func(rec *record.Record) bool { return p.add(at.partition, rec) })
	p.hash = hashBatches(p.hash, r.Batches, at.next)
	if err != nil {
		p.full = p.records > 0
		return p.unreadable(at, err)
	}
	return nil
}

func (p *page) unreadable(at *place, cause error) error {
	return unreadable(p.topic, *at, cause, func(offset int64) position {
		pos := p.position()
		i := 0
		if len(pos.offsets) > 1 {
			i = int(at.partition)
		}
		pos.offsets[i] = offset
		return pos
	})
}

// add takes in one record, unless the page is full.
func (p *page) add(partition int32, r *record.Record) bool {
	size := payloadSize(r)
	if p.records > 0 && (p.records == p.query.maxRecords || p.bytes+size > p.query.maxBytes ||
		p.decoder.isFull()) {
		p.full = true
		return false
	}
	p.out.reserve(2*size + 256)
	if p.records > 0 {
		p.out.buf = append(p.out.buf, p.between...)
	}
	p.out.buf = p.append(p.out.buf, partition, r)
	p.out.buf = append(p.out.buf, p.after...)
	p.records++
	p.bytes += size
	return true
}

// saw keeps what a fetch said of the partition.
func (p *place) saw(r *client.FetchResult, level client.Isolation) {
	p.highWatermark, p.limit = r.HighWatermark, r.HighWatermark
	if level == client.ReadCommitted && r.LastStableOffset >= 0 {
		p.limit = r.LastStableOffset
	}
}

// request asks for what the page still has room for, each partition for its share. The partition that comes first
// moves on with the reader, since the first one with data may take all the room.
func (p *page) request(wait time.Duration) client.FetchRequest {
	room := p.query.maxBytes - p.bytes
	if p.query.limited {
		room = min(room, max((p.query.maxRecords-p.records)*fetchPerRecord, minFetchBytes))
	}
	room = max(room, minFetchBytes)
	r := client.FetchRequest{
		Topic: p.topic, MaxWait: wait, MinBytes: 1, MaxBytes: room,
		ReadCommitted: p.query.isolation == client.ReadCommitted, Rack: p.query.rack,
		Partitions: make([]client.FetchPartition, 0, len(p.places)),
	}
	first := p.firstPlace()
	active := 0
	for i := range p.places {
		if p.places[i].hasMore() || p.places[i].limit < 0 {
			active++
		}
	}
	share := max(room/max(active, 1), min(room, minFetchBytes))
	for i := range p.places {
		at := &p.places[(first+i)%len(p.places)]
		r.Partitions = append(r.Partitions, client.FetchPartition{
			Partition: at.partition, Offset: at.next, MaxBytes: share,
		})
	}
	return r
}

func (p *page) firstPlace() int {
	sum := uint64(0)
	for i := range p.places {
		sum += uint64(p.places[i].next)
	}
	return int(sum % uint64(len(p.places)))
}

func (p *page) placeOf(partition int32) *place {
	if len(p.places) == 1 {
		return &p.places[0]
	}
	return &p.places[partition] // places of a whole topic are in the order of its partitions
}

// sealed says that the page will be the same whenever it is read again: it was cut by a bound in every partition,
// below what may be read, and what is below that never changes.
func (p *page) sealed() bool {
	for i := range p.places {
		if !p.places[i].hasMore() {
			return false
		}
	}
	return p.records > 0
}

// identity hashes what the page is of.
func (p *page) identity() uint64 {
	h := mix(0, binary.BigEndian.Uint64(p.topic.ID[:8]))
	h = mix(h, binary.BigEndian.Uint64(p.topic.ID[8:]))
	for i := range p.places {
		h = mix(mix(h, uint64(p.places[i].partition)), uint64(p.places[i].next))
	}
	h = mix(h, uint64(p.query.key)<<16|uint64(p.query.value)<<8|uint64(p.query.isolation))
	return h
}

// hashBatches adds the batches that begin before an offset to a hash.
func hashBatches(h uint64, batches []byte, before int64) uint64 {
	for {
		b, rest, err := record.Next(batches)
		if err != nil || b.BaseOffset() >= before {
			return mix(h, uint64(before))
		}
		h = mix(mix(h, uint64(b.BaseOffset())), uint64(b.CRC()))
		batches = rest
	}
}

// mix adds one word to a hash.
func mix(h, word uint64) uint64 { return bits.RotateLeft64(h^word, 27) * 0x9e3779b97f4a7c15 }

// position is where the next page starts.
func (p *page) position() position {
	out := position{partition: p.partition, offsets: make([]int64, len(p.places)), tag: topicTag(p.topic.ID)}
	for i := range p.places {
		out.offsets[i] = p.places[i].next
	}
	return out
}
