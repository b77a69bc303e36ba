package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// Bounds of a fetch.
const (
	minFetchBytes  = 16 << 10 // a partition's share is not below this
	waitFetchBytes = 64 << 10 // of a fetch that waits: many may have their answers at once
	fetchPerRecord = 1 << 10  // guess at a record's size, where a poll is bounded by records
	maxExpanded    = 64 << 20 // of one compressed batch
)

// fetched is what a fetch brought of one partition.
type fetched struct {
	part    *part
	from    int64
	next    int64
	first   int // place of its first record among all records
	count   int
	fault   error
	outside bool
	refused bool // fault is of PollRequest.Check
}

// fetch reads once, without waiting at first and else for as long as wait, and hands out what there is; nil: nothing.
func (m *Member) fetch(ctx context.Context, parts []*part, q *PollRequest, first bool, wait time.Duration) (
	*Polled, error,
) {
	if first {
		select {
		case m.parent.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		p, err := m.fetchOnce(ctx, parts, q, 0)
		if p == nil {
			<-m.parent.slots
			return nil, err
		}
		free := p.free
		p.free = func() { free(); <-m.parent.slots }
		return p, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.stop = cancel
	same := true // who changed the partitions meanwhile found nothing to stop
	for _, p := range parts {
		same = same && m.parts[p.TopicPartition] == p
	}
	same = same && m.end == nil && !m.leaving
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.stop = nil
		m.mu.Unlock()
	}()
	if !same {
		return nil, nil
	}
	p, err := m.fetchOnce(ctx, parts, q, wait)
	if err != nil && ctx.Err() != nil {
		return nil, nil // the caller's own context is looked at again
	}
	return p, err
}

func (m *Member) fetchOnce(ctx context.Context, parts []*part, q *PollRequest, wait time.Duration) (*Polled, error) {
	arena := m.parent.o.Arena()
	freed := false
	free := func() {
		if arena != nil && !freed {
			arena.Free()
		}
		freed = true
	}
	m.mu.Lock()
	req, got := m.fetchRequestLocked(parts, q, wait)
	m.mu.Unlock()
	resp, err := req.RequestWith(record.WithArena(ctx, arena), m.parent.o.Requests)
	if err == nil && resp.ErrorCode != 0 {
		e := kerr.TypedErrorForCode(resp.ErrorCode)
		err = client.Fault(e, "%s", e.Description)
	} else if err != nil {
		err = noAnswer("fetch for a member of group "+m.group, err)
	}
	if err != nil {
		free()
		return nil, err
	}
	s := scan{q: q, codecs: m.parent.codecs}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if g := findFetched(got, req, &resp.Topics[i], resp.Topics[i].Partitions[j].Partition); g != nil {
				s.take(g, &resp.Topics[i].Partitions[j])
			}
		}
	}
	p, err := m.handOut(s.records, got)
	if p == nil {
		free()
		return nil, err
	}
	p.free = free
	return p, nil
}

// fetchRequestLocked asks for what there is of partitions, each for its share. Another one comes first each time,
// since the first with records may take all the room.
func (m *Member) fetchRequestLocked(parts []*part, q *PollRequest, wait time.Duration) (
	*kmsg.FetchRequest, []*fetched,
) {
	room := q.MaxBytes
	if q.MaxRecords < defaultMaxRecords {
		room = min(room, q.MaxRecords*fetchPerRecord)
	}
	if wait > 0 {
		room = min(room, waitFetchBytes)
	}
	room = max(room, minFetchBytes)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32((wait + time.Millisecond - 1).Milliseconds())
	req.MinBytes, req.MaxBytes, req.SessionEpoch, req.Rack = 1, int32(room), -1, m.cfg.Rack
	if m.cfg.Isolation == client.ReadCommitted {
		req.IsolationLevel = 1
	}
	got := make([]*fetched, 0, len(parts))
	turn := int(uint64(m.delivery) % uint64(len(parts)))
	for i := range parts {
		p := parts[(turn+i)%len(parts)]
		if p.position < 0 || p.lost {
			continue
		}
		got = append(got, &fetched{part: p, from: p.position, next: p.position})
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.Topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.Topic, p.topicID
			req.Topics = append(req.Topics, t)
		}
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset = p.Partition, p.position
		fp.PartitionMaxBytes = int32(room)
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, fp)
	}
	// The first topic may have come last too: it is named once.
	if n := len(req.Topics); n > 1 && req.Topics[0].Topic == req.Topics[n-1].Topic {
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[n-1].Partitions...)
		req.Topics = req.Topics[:n-1]
	}
	return req, got
}

// findFetched finds what an answer is about.
func findFetched(got []*fetched, req *kmsg.FetchRequest, t *kmsg.FetchResponseTopic, partition int32) *fetched {
	name := t.Topic
	for i := range req.Topics {
		if name == "" && req.Topics[i].TopicID == t.TopicID {
			name = req.Topics[i].Topic
		}
	}
	for _, g := range got {
		if g.part.Topic == name && g.part.Partition == partition {
			return g
		}
	}
	return nil
}

// handOut hands out records of the partitions that the member has still. An error is of a partition that cannot be
// read, where there is nothing else.
func (m *Member) handOut(records []Record, got []*fetched) (*Polled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(got) > 0 && got[0].refused && got[0].count == 0 && m.parts[got[0].part.TopicPartition] == got[0].part {
		m.delivery++ // another partition comes first next time
		return nil, got[0].fault
	}
	out := &Polled{Records: records[:0:0]}
	whole := true
	var fault error
	for _, g := range got {
		p := g.part
		if m.parts[p.TopicPartition] != p || p.position != g.from {
			whole = whole && g.count == 0
			g.count = 0
			continue
		}
		switch {
		case g.outside:
			p.lost = true
		case g.fault != nil && !mayPass(g.fault):
			fault = g.fault
		case g.fault != nil:
			p.later = time.Now().Add(partPause)
		}
		if p.position = g.next; g.count > 0 {
			p.start, p.startBase, p.handed, p.delivery = g.from, p.base, true, m.delivery+1
			out.Offsets = append(out.Offsets, p.delivered())
		}
	}
	if whole {
		out.Records = records
	} else {
		for _, g := range got {
			out.Records = append(out.Records, records[g.first:g.first+g.count]...)
		}
	}
	if len(out.Records) == 0 {
		return nil, fault
	}
	m.delivery++
	out.Delivery = m.delivery
	slices.SortFunc(out.Offsets, func(a, b Offset) int { return a.Compare(b.TopicPartition) })
	return out, nil
}

// delivered is what a delivery commits, when it is done, and the base of the next one.
func (p *part) delivered() Offset {
	o := Offset{TopicPartition: p.TopicPartition, Offset: p.position}
	if from := p.base; from != unsure {
		o.From = &from
	}
	p.base = p.position
	return o
}

// faultOf is what is wrong with a partition of an answer to a fetch from an offset.
func faultOf(tp client.TopicPartition, from int64, p *kmsg.FetchResponseTopicPartition) error {
	e := kerr.TypedErrorForCode(client.FetchCode(p, from))
	if e == nil {
		return nil
	}
	f := client.Fault(e, "%s", e.Description)
	f.Topic, f.Partition = tp.Topic, tp.Partition
	if at, ok := ktag.ResumeOffset(&p.UnknownTags); ok {
		f.ResumeOffset = at
	}
	return f
}

var errFull = errors.New("full")
