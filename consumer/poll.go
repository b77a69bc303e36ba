package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"millrace/client"
	"millrace/record"
)

// Bounds of a poll.
const (
	defaultMaxRecords = 10_000
	defaultMaxBytes   = 1 << 20
	pollPause         = 50 * time.Millisecond // after a fault that may pass
	partPause         = 200 * time.Millisecond
)

// PollRequest asks for records.
type PollRequest struct {
	MaxRecords int           // 10,000 by default
	MaxBytes   int           // of keys, values and headers; 1 MiB by default; one record always fits
	Wait       time.Duration // for the first record; 0 answers at once
	// Seen is the number of the last delivery that the client had, 0 if it had none. It counts where SaysSeen is
	// true: when the number is not that of the last delivery, what that held is handed out again. Else whoever
	// comes for more had all.
	Seen     int64
	SaysSeen bool
	// More asks for more while the client is not done with what was handed out: it will commit that, when it is.
	More bool
	// JoinWait is how long, from when the member was subscribed or taken over, the first partitions are waited for,
	// where that is longer than Wait.
	JoinWait time.Duration
	// Check refuses records that the caller cannot take, nil: none. A refused record is not handed out, and nothing
	// behind it; the error is that of the poll when there is nothing else, or when it is the partition's turn to
	// come first.
	Check func(*Record) error
}

// Polled is what a poll hands out.
type Polled struct {
	// Records are in order within a partition. Their bytes are valid until Free.
	Records []Record
	// Delivery is the number of this delivery, or of the last one when there are no records.
	Delivery int64
	// Offsets are, for each partition with records, where the group is when they are done, and where it comes from if
	// nothing else was committed in between, by topic and partition.
	Offsets []Offset
	free    func()
}

// Record is one record and where it is from.
type Record struct {
	Topic     string
	Partition int32
	record.Record
}

// Free gives the memory of the records back. It is called once.
func (p *Polled) Free() {
	if p.free != nil {
		p.free()
	}
}

// Poll hands out records, as soon as there are some. It takes note that the client is done with what was handed out
// before, and with AutoCommit commits that first. It waits for an assignment.
func (m *Member) Poll(ctx context.Context, q PollRequest) (*Polled, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	deadline := time.Now().Add(q.Wait)
	switch got, err := m.takeUntil(ctx, deadline); {
	case err != nil:
		return nil, err
	case !got:
		return m.nothing(&q), nil
	}
	defer m.give()
	if q.MaxRecords <= 0 {
		q.MaxRecords = defaultMaxRecords
	}
	if q.MaxBytes <= 0 {
		q.MaxBytes = defaultMaxBytes
	}
	if err := m.begin(q); err != nil {
		return nil, err
	}
	if !q.More && m.commitDue() {
		var parts *partsError // a topic that is gone, and the like: no reason to hand out nothing
		switch err := m.commitHandedOut(ctx); {
		case err == nil, errors.As(err, &parts):
		case m.rejoins() && isOutlaw(err): // it has lost the partitions, and joins again
		default:
			return nil, err
		}
	}
	return m.poll(ctx, q, deadline)
}

// nothing is the answer without records. The last delivery is not told to whoever has not got it.
func (m *Member) nothing(q *PollRequest) *Polled {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.SaysSeen && q.Seen < m.delivery {
		return &Polled{Delivery: q.Seen}
	}
	return &Polled{Delivery: m.delivery}
}

// takeUntil gets the turn unless somebody else has it until a deadline. A poll that only waits gives it up: mostly
// its client has gone, and it is the same one that comes again.
func (m *Member) takeUntil(ctx context.Context, deadline time.Time) (bool, error) {
	select {
	case m.turn <- struct{}{}:
		return true, nil
	default:
	}
	m.mu.Lock()
	m.rivals++
	m.notifyLocked()
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.rivals--
		m.mu.Unlock()
	}()
	t := time.NewTimer(max(time.Until(deadline), pollPause))
	defer t.Stop()
	select {
	case m.turn <- struct{}{}:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Lost takes note that records which were handed out, last by a delivery of that number, did not reach the client:
// from these offsets on they are handed out again, unless the client has come back meanwhile. Only an answer that
// cannot have arrived as a whole is lost: whoever calls for one that has repeats records without need.
func (m *Member) Lost(delivery int64, from ...Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range from {
		p := m.partLocked(o.TopicPartition)
		if p != nil && p.handed && p.delivery <= delivery && p.position > o.Offset {
			p.position, p.base, p.handed = o.Offset, p.startBase, false
		}
	}
	if len(m.revoking) > 0 {
		m.wakeLocked()
	}
}

func (m *Member) rejoins() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg.Rejoin
}

func (m *Member) begin(q PollRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.subscribedLocked() && m.manual == nil {
		return ErrNotSubscribed
	}
	switch {
	case q.More:
	case q.SaysSeen:
		return m.seenLocked(q.Seen)
	default:
		m.cameLocked()
	}
	return nil
}

// poll waits for records until a deadline.
func (m *Member) poll(ctx context.Context, q PollRequest, deadline time.Time) (*Polled, error) {
	for first := true; ; first = false {
		m.mu.Lock()
		err, changed := m.goneLocked(), m.changed
		parts, next := m.readableLocked()
		number, joining, rivals := m.delivery, time.Time{}, m.rivals
		if len(m.parts) == 0 {
			joining = m.since.Add(q.JoinWait)
		}
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if rivals > 0 && !first {
			return m.nothing(&q), nil
		}
		left := time.Until(deadline)
		if len(parts) > 0 {
			var p *Polled
			if err = m.locate(ctx, parts); err == nil {
				p, err = m.fetch(ctx, parts, &q, first, max(left, 0))
			}
			switch {
			case p != nil:
				return p, nil
			case err != nil && (ctx.Err() != nil || left <= 0 || !mayPass(err)):
				return nil, err
			case err != nil:
				next = time.Now().Add(pollPause)
			}
		}
		if left = max(time.Until(deadline), time.Until(joining)); left <= 0 {
			return &Polled{Delivery: number}, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if len(parts) > 0 && err == nil {
			continue
		}
		if !next.IsZero() {
			left = min(left, max(time.Until(next), time.Millisecond))
		}
		t := time.NewTimer(left)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// mayPass says of an error that the same may go well a little later.
func mayPass(err error) bool {
	var k *client.KafkaError
	if errors.As(err, &k) {
		return k.Err.Retriable
	}
	return errors.Is(err, client.ErrNoAnswer)
}

// readableLocked lists the partitions that may be fetched now, in order; those that could not be read are left out
// for a while, and next is when the first of them may be tried again.
func (m *Member) readableLocked() (parts []*part, next time.Time) {
	now := time.Now()
	for _, p := range m.parts {
		if p.later.After(now) {
			if next.IsZero() || p.later.Before(next) {
				next = p.later
			}
			continue
		}
		parts = append(parts, p)
	}
	slices.SortFunc(parts, func(a, b *part) int { return a.Compare(b.TopicPartition) })
	return parts, next
}

// locate finds where to read partitions of which that is not known: where the group has come to, else by Reset.
func (m *Member) locate(ctx context.Context, parts []*part) error {
	m.mu.Lock()
	reset, level, pin := m.cfg.Reset, m.cfg.Isolation, m.cfg.PinStart
	var ask, start []client.TopicPartition
	of := make(map[client.TopicPartition]*part)
	var outside int64 = -1
	for _, p := range parts {
		switch of[p.TopicPartition] = p; {
		case p.lost:
			if start = append(start, p.TopicPartition); len(start) == 1 {
				outside = p.position
			}
		case p.position < 0:
			ask = append(ask, p.TopicPartition)
		}
	}
	m.mu.Unlock()
	if len(ask) > 0 {
		found, err := m.committed(ctx, ask)
		if err != nil {
			return err
		}
		m.mu.Lock()
		for i := range found {
			switch p := of[ask[i]]; {
			case p.position >= 0: // somebody set it meanwhile
			case found[i].Offset >= 0:
				p.position, p.committed, p.base = found[i].Offset, found[i].Offset, found[i].Offset
			default:
				p.base = -1
				start = append(start, ask[i])
			}
		}
		m.mu.Unlock()
	}
	if len(start) == 0 {
		return nil
	}
	if reset == None {
		return m.noPlace(ctx, start[0], outside, level)
	}
	timestamp := client.Latest
	if reset == Earliest {
		timestamp = client.Earliest
	}
	places, err := m.lookUp(ctx, start, timestamp, level)
	if err != nil {
		return err
	}
	var commit []commitOf
	m.mu.Lock()
	for tp, at := range places {
		if p := of[tp]; p.position < 0 || p.lost {
			p.position, p.lost = at, false
			commit = append(commit, commitOf{part: p, offset: at})
		}
	}
	m.mu.Unlock()
	if pin {
		return m.commitParts(ctx, commit)
	}
	if reset == Latest && len(commit) > 0 {
		return m.rememberStart(ctx, commit)
	}
	return nil
}

// noPlace says that a member has no place in a partition, and what there is to read.
func (m *Member) noPlace(ctx context.Context, in client.TopicPartition, outside int64, level client.Isolation) error {
	e := &NoOffsetError{TopicPartition: in, Offset: outside}
	first, err := m.lookUp(ctx, []client.TopicPartition{in}, client.Earliest, level)
	if err != nil {
		return e
	}
	last, err := m.lookUp(ctx, []client.TopicPartition{in}, client.Latest, level)
	if err != nil {
		return e
	}
	e.Start, e.End, e.Known = first[in], last[in], true
	return e
}

// rememberStart keeps with the coordinator where the member began at the end, as if it had sought there: another node
// that took it over would begin at another end, and skip what is between. It waits until the coordinator knows, before
// the client hears of anything; where that takes too long, or cannot be kept, the member reads on all the same.
func (m *Member) rememberStart(ctx context.Context, at []commitOf) error {
	bounded, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	err := m.update(bounded, func() (func(), error) {
		for _, c := range at {
			m.seeks[c.part.TopicPartition] = c.offset
		}
		return func() { // so many partitions cannot be kept
			for _, c := range at {
				delete(m.seeks, c.part.TopicPartition)
			}
		}, nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrMoved), errors.Is(err, ErrUnknownMember), errors.Is(err, ErrFenced):
		return err
	}
	return nil
}
