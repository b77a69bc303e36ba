package client

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/record"
)

// PartitionLag is how far a group is behind in a partition.
type PartitionLag struct {
	TopicPartition
	Committed int64 // the next offset to read; -1 if the group has none
	End       int64 // the offset that comes next in the log; -1 if it is not known
	Err       error // why the end is not known: nil, a *KafkaError, or ErrNoAnswer
}

// Lag is how many offsets the group is behind; ok is false if that is not known. An offset beyond the end, which can be
// committed and is left when records are lost, is no lag.
func (p *PartitionLag) Lag() (lag int64, ok bool) {
	if p.Committed < 0 || p.End < 0 {
		return 0, false
	}
	return max(p.End-p.Committed, 0), true
}

// Lag tells how far a group is behind, by topic and partition: where it has offsets, and in the partitions named.
func (c *Client) Lag(ctx context.Context, group string, level Isolation, and ...TopicPartition) (
	[]PartitionLag, error,
) {
	committed, err := c.Committed(ctx, group, false)
	if err != nil {
		return nil, err
	}
	out := make([]PartitionLag, 0, len(committed)+len(and))
	for i := range committed {
		out = append(out, PartitionLag{TopicPartition: committed[i].TopicPartition, Committed: committed[i].Offset})
	}
	for _, at := range and {
		out = append(out, PartitionLag{TopicPartition: at, Committed: -1})
	}
	slices.SortStableFunc(out, func(a, b PartitionLag) int { return a.Compare(b.TopicPartition) })
	out = slices.CompactFunc(out, func(a, b PartitionLag) bool { return a.TopicPartition == b.TopicPartition })
	of := make([]TopicPartition, len(out))
	for i := range out {
		of[i] = out[i].TopicPartition
	}
	ends, err := c.EndOffsets(ctx, of, level)
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].End, out[i].Err = ends[i].Offset, ends[i].Err
	}
	return out, nil
}

// GroupLag is how far a group is behind in all, or why that cannot be told.
type GroupLag struct {
	ID         string
	Partitions int   // that it has offsets of
	Records    int64 // the lag of all together
	MaxRecords int64 // the lag of the one that is furthest behind
	Unknown    int   // partitions whose lag is not known
	Err        error // nil, a *KafkaError, or ErrNoAnswer
}

// lagChunk is how many groups are looked at together, which bounds what is in memory of them.
const lagChunk = 500

// Lags tells how far groups are behind, in their order. The end of a partition that several groups read is looked up
// once.
func (c *Client) Lags(ctx context.Context, groups []string, level Isolation) ([]GroupLag, error) {
	out := make([]GroupLag, 0, len(groups))
	ends := make(map[TopicPartition]int64)
	for part := range slices.Chunk(groups, lagChunk) {
		committed, err := c.CommittedOfAll(ctx, part, false)
		if err != nil {
			return nil, err
		}
		if err := c.addEnds(ctx, committed, ends, level); err != nil {
			return nil, err
		}
		for i := range committed {
			out = append(out, sumLag(&committed[i], ends))
		}
	}
	return out, nil
}

// addEnds looks up the ends that are missing. What has none is not known: -1.
func (c *Client) addEnds(
	ctx context.Context, committed []GroupOffsets, ends map[TopicPartition]int64, level Isolation,
) error {
	var missing []TopicPartition
	for i := range committed {
		for j := range committed[i].Offsets {
			at := committed[i].Offsets[j].TopicPartition
			if _, ok := ends[at]; !ok {
				ends[at] = -1
				missing = append(missing, at)
			}
		}
	}
	found, err := c.EndOffsets(ctx, missing, level)
	if err != nil {
		return err
	}
	for i := range found {
		if found[i].Err == nil {
			ends[found[i].TopicPartition] = found[i].Offset
		}
	}
	return nil
}

func sumLag(g *GroupOffsets, ends map[TopicPartition]int64) GroupLag {
	out := GroupLag{ID: g.ID, Err: g.Err, Partitions: len(g.Offsets)}
	for i := range g.Offsets {
		o := &g.Offsets[i]
		p := PartitionLag{Committed: o.Offset, End: ends[o.TopicPartition]}
		lag, ok := p.Lag()
		if !ok {
			out.Unknown++
		}
		out.Records += lag
		out.MaxRecords = max(out.MaxRecords, lag)
	}
	return out
}

// Bounds on the look at records for their times.
const (
	timeChunk    = 100     // partitions of one fetch
	timeBytes    = 4 << 10 // of each partition; the header of a batch will do
	timeRounds   = 10      // of asking again for what did not come
	timeExpanded = 4 << 20 // of one batch
)

// NextTimes looks up the timestamps of the records that come next, in epoch milliseconds, for partitions and offsets
// that must all be of different partitions: -1 where there is none, or where it is not known. Below the log start it is
// the first record's. Of a batch that is too large to come whole it is the first record's too.
func (c *Client) NextTimes(ctx context.Context, of []CommittedOffset, level Isolation) ([]int64, error) {
	out := make([]int64, len(of))
	byName := make(map[string][]int) // places in of
	for i := range of {
		out[i] = -1
		byName[of[i].Topic] = append(byName[of[i].Topic], i)
	}
	for name, places := range byName {
		topic, err := c.Topic(ctx, name, Refuse)
		if err != nil {
			if errors.Is(err, ErrNoAnswer) {
				return nil, err
			}
			continue
		}
		for part := range slices.Chunk(places, timeChunk) {
			look := timeLook{client: c, topic: topic, level: level, times: out}
			for _, i := range part {
				look.open = append(look.open, wanted{i, of[i].Partition, of[i].Offset})
			}
			if err := look.run(ctx); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// timeLook looks for the times of records in partitions of one topic.
type timeLook struct {
	client *Client
	topic  *Topic
	level  Isolation
	open   []wanted
	times  []int64
	reader record.Reader
}

// wanted is a record whose time is looked for: the first at or after an offset.
type wanted struct {
	place     int // in times
	partition int32
	offset    int64
}

// run fetches until every partition has told, or there were timeRounds. In each round the first of those that are left
// tells for certain, for its first batch always comes whole.
func (l *timeLook) run(ctx context.Context) error {
	defer l.reader.Close()
	l.reader.Codecs = l.client.codecs
	for range timeRounds {
		if len(l.open) == 0 {
			return nil
		}
		r := FetchRequest{Topic: l.topic, MaxBytes: timeBytes * len(l.open), ReadCommitted: l.level == ReadCommitted}
		for _, w := range l.open {
			r.Partitions = append(r.Partitions, FetchPartition{Partition: w.partition, Offset: w.offset, MaxBytes: timeBytes})
		}
		got, err := l.client.Fetch(ctx, r)
		if err != nil {
			return err
		}
		var again []wanted
		for i := range got {
			if w, more := l.take(l.open[i], &got[i]); more {
				again = append(again, w)
			}
		}
		l.open = again
	}
	return nil
}

// take notes what a partition tells, and says where to ask it again.
func (l *timeLook) take(w wanted, r *FetchResult) (again wanted, more bool) {
	switch {
	case errors.Is(r.Err, kerr.OffsetOutOfRange) && r.LogStartOffset > w.offset:
		w.offset = r.LogStartOffset
		return w, true
	case r.Err != nil:
		return w, false
	}
	for buf := r.Batches; len(buf) >= record.HeaderSize; {
		b := record.Batch(buf)
		switch {
		case b.Length() < record.HeaderSize: // no batch
			return w, false
		case b.IsControl() || b.Count() == 0 || b.NextOffset() <= w.offset:
			w.offset = max(w.offset, b.NextOffset())
		default:
			l.times[w.place] = l.timeIn(b, w.offset)
			return w, false
		}
		if b.Length() > len(buf) {
			return w, true
		}
		buf = buf[b.Length():]
	}
	end := r.HighWatermark
	if l.level == ReadCommitted && r.LastStableOffset >= 0 {
		end = r.LastStableOffset
	}
	return w, w.offset < end
}

// timeIn is the time of the first record of a batch at or after an offset. Of a batch that is cut the header has to
// tell.
func (l *timeLook) timeIn(b record.Batch, offset int64) int64 {
	first := b.BaseTimestamp()
	if b.TimestampType() == record.LogAppendTime || b.HasDeleteHorizon() { // the cleaner keeps its own time there
		first = b.MaxTimestamp()
	}
	if b.Length() > len(b) {
		return first
	}
	l.reader.Reset(b[:b.Length()], timeExpanded)
	var rec record.Record
	for l.reader.Next(&rec) {
		if rec.Offset >= offset {
			return rec.Timestamp
		}
	}
	return first
}
