package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"millrace/client"
)

const (
	commitTries = 10
	commitPause = 50 * time.Millisecond
	// maxAhead is how far the deliveries of a node may be ahead of those of the next, which begin at its time.
	maxAhead = int64(24 * time.Hour / time.Microsecond)
	// leap is how far a node leaps beyond a number of another one: who gave it may have gone on from there, and a
	// request that came late may name an old one.
	leap = int64(time.Minute / time.Microsecond)
)

// Offset is the offset of a partition: that of the next record to read.
type Offset struct {
	client.TopicPartition
	Offset   int64
	Metadata string
	// From is of commits and deliveries: what is committed before, -1: nothing. A commit that gives it is refused,
	// by a *client.OffsetMovedError, where something else is; nil: that is not looked at, or not known.
	From *int64
}

// Ack says which delivery a client had last, 0 if it had none: when that is not the last one, what that held is
// handed out again, and not committed. Nil says nothing: whoever comes back had all.
type Ack *int64

// cameLocked takes note that the client is done with what was handed out to it.
func (m *Member) cameLocked() {
	for _, p := range m.parts {
		p.handed = false
	}
	for _, p := range m.revoking {
		p.handed = false
	}
	if len(m.revoking) > 0 {
		m.wakeLocked()
	}
}

// seenLocked is cameLocked for a client that says which delivery it had last. Where that is not the last one, its
// answer was lost, and what it held is handed out again.
func (m *Member) seenLocked(seen int64) error {
	last := m.delivery
	if seen > last {
		if seen-last > maxAhead {
			return ErrBadSeen
		}
		// Another node gave that number, whose clock was ahead: what this one handed out is not known to have come.
		m.delivery, seen = seen+leap, -1
	}
	for _, p := range m.parts {
		if seen < last && p.handed && p.delivery == last {
			p.position, p.base = p.start, p.startBase
		}
	}
	for _, p := range m.revoking {
		if seen < last && p.handed && p.delivery == last {
			p.position = p.start // for whoever reads it next
		}
	}
	m.cameLocked()
	return nil
}

// settleRevoked gives up what is to be given up and may be: what the client has come back from, or has kept for too
// long. With AutoCommit its place is committed first.
func (m *Member) settleRevoked(ctx context.Context) {
	m.mu.Lock()
	limit := min(m.cfg.Lease, maxRevocation)
	var ready []*part
	var commit []commitOf
	for _, p := range m.revoking {
		late := time.Since(p.revoked) >= limit
		if p.committing > 0 || p.handed && !late {
			continue
		}
		ready = append(ready, p)
		if m.cfg.AutoCommit && !p.handed && p.position >= 0 && p.position != p.committed {
			commit = append(commit, commitOf{part: p, offset: p.position})
		}
	}
	m.mu.Unlock()
	if len(commit) > 0 {
		ctx, cancel := context.WithTimeout(ctx, leaveLimit)
		defer cancel()
		if err := m.commitParts(ctx, commit); err != nil {
			m.parent.o.Logger.Info("what a member gave up could not be committed: it is read again", "group", m.group,
				"member", m.id, "err", err)
		}
	}
	m.mu.Lock()
	for _, p := range ready {
		if m.revoking[p.TopicPartition] == p {
			delete(m.revoking, p.TopicPartition)
			delete(m.seeks, p.TopicPartition)
		}
	}
	m.mu.Unlock()
}

// commitOf is what is to be committed of a partition.
type commitOf struct {
	part     *part
	offset   int64
	metadata string
	from     *int64
	done     bool // it is committed
}

// commitHandedOut commits the positions of all partitions that the client is done with.
func (m *Member) commitHandedOut(ctx context.Context) error {
	m.mu.Lock()
	var list []commitOf
	for _, p := range m.parts {
		if !p.handed && p.position >= 0 && p.position != p.committed {
			list = append(list, commitOf{part: p, offset: p.position})
		}
	}
	for _, p := range m.revoking {
		if !p.handed && p.position >= 0 && p.position != p.committed {
			list = append(list, commitOf{part: p, offset: p.position})
		}
	}
	m.mu.Unlock()
	return m.commitParts(ctx, list)
}

// commitDue says whether an automatic commit is due: the interval is over, or something is to be given up.
func (m *Member) commitDue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg.AutoCommit && (len(m.revoking) > 0 || time.Since(m.commits) >= m.cfg.CommitEvery)
}

// CommitDelivered commits the positions behind all that was handed out, but for a delivery that by ack has not
// come. It gives what is committed of the partitions that the member has read, by this call or before, and an error
// for each that is not.
func (m *Member) CommitDelivered(ctx context.Context, ack Ack) ([]Offset, []error, error) {
	if err := m.enter(); err != nil {
		return nil, nil, err
	}
	defer m.exit()
	if err := m.came(ack); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	var offsets []Offset
	for _, of := range []map[client.TopicPartition]*part{m.parts, m.revoking} {
		for _, p := range of {
			if !p.handed && p.position >= 0 {
				offsets = append(offsets, Offset{TopicPartition: p.TopicPartition, Offset: p.position})
			}
		}
	}
	m.mu.Unlock()
	slices.SortFunc(offsets, func(a, b Offset) int { return a.Compare(b.TopicPartition) })
	errs, err := m.commitOffsets(ctx, offsets, true)
	return offsets, errs, err
}

// came takes note that the client has come back.
func (m *Member) came(ack Ack) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ack != nil {
		return m.seenLocked(*ack)
	}
	m.cameLocked()
	return nil
}

// Commit commits offsets of partitions that the member has. The results are in their order.
func (m *Member) Commit(ctx context.Context, offsets []Offset) ([]error, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	return m.commitOffsets(ctx, offsets, false)
}

// commitOffsets is Commit during a call. With fresh, what is known to be committed is left out.
func (m *Member) commitOffsets(ctx context.Context, offsets []Offset, fresh bool) ([]error, error) {
	out, list := make([]error, len(offsets)), make([]commitOf, 0, len(offsets))
	at := make([]int, len(offsets)) // places in list, -1: not there
	m.mu.Lock()
	for i := range offsets {
		o := &offsets[i]
		p := m.partLocked(o.TopicPartition)
		switch at[i] = -1; {
		case p == nil:
			out[i] = ErrNotAssigned
		case o.Offset < 0:
			out[i] = bad("an offset is 0 or more, not %d", o.Offset)
		case fresh && p.committed == o.Offset:
		default:
			at[i] = len(list)
			list = append(list, commitOf{part: p, offset: o.Offset, metadata: o.Metadata, from: o.From})
		}
	}
	m.mu.Unlock()
	err := m.commitParts(ctx, list)
	var parts *partsError
	if err != nil && !errors.As(err, &parts) {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range offsets {
		switch {
		case at[i] < 0:
		case list[at[i]].done:
			list[at[i]].cameLocked()
		case parts != nil && parts.of[offsets[i].TopicPartition] != nil:
			out[i] = parts.of[offsets[i].TopicPartition]
		default: // it was taken from the member meanwhile
			out[i] = ErrNotAssigned
		}
	}
	if len(m.revoking) > 0 {
		m.wakeLocked()
	}
	return out, nil
}

// cameLocked takes note of what the client has, by what it has committed.
func (c *commitOf) cameLocked() {
	switch p := c.part; {
	case c.offset >= p.position:
		p.handed = false
	case p.handed && c.offset > p.start: // so much has come, whatever is said of the delivery
		p.start, p.startBase = c.offset, c.offset
	}
}

// partLocked is a partition that the member has, or has to give up, or nil.
func (m *Member) partLocked(tp client.TopicPartition) *part {
	if p := m.parts[tp]; p != nil {
		return p
	}
	return m.revoking[tp]
}

// partsError says which partitions could not be committed; the others were.
type partsError struct {
	of map[client.TopicPartition]error
}

func (e *partsError) Error() string {
	for _, err := range e.of {
		return err.Error()
	}
	return "commit"
}

func (e *partsError) Unwrap() []error {
	var list []error
	for _, err := range e.of {
		list = append(list, err)
	}
	return list
}

// commitParts commits offsets of partitions that the member has at that moment.
func (m *Member) commitParts(ctx context.Context, list []commitOf) error {
	if len(list) == 0 {
		return nil
	}
	m.mu.Lock()
	for _, c := range list {
		c.part.committing++
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, c := range list {
			c.part.committing--
		}
		if len(m.revoking) > 0 {
			m.wakeLocked()
		}
	}()
	for try := 1; ; try++ {
		req, sent := m.commitRequest(list)
		if len(sent) == 0 {
			return nil
		}
		m.mu.Lock()
		changed, end := m.changed, m.end
		m.mu.Unlock()
		if end != nil {
			return end
		}
		errs, err := m.parent.o.Client.CommitOffsets(ctx, req)
		if err != nil {
			return err
		}
		fault, faults := m.tookCommit(errs, sent)
		switch {
		case fault == nil:
			return faults
		case isOutlaw(fault):
			return m.outlawed(ctx, fault)
		case !isAny(fault, kerr.StaleMemberEpoch, kerr.RebalanceInProgress) || try == commitTries:
			return fault
		}
		t := time.NewTimer(commitPause) // the loop is about to hear of the epoch
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// isOutlaw says of an error that the group went on without the member.
func isOutlaw(err error) bool {
	return isAny(err, kerr.UnknownMemberID, kerr.GroupIDNotFound, kerr.FencedMemberEpoch, kerr.IllegalGeneration)
}

func isMoved(err error) bool {
	var moved *client.OffsetMovedError
	return errors.As(err, &moved)
}

func isAny(err error, of ...*kerr.Error) bool {
	return slices.ContainsFunc(of, func(e *kerr.Error) bool { return errors.Is(err, e) })
}

// outlawed is why a commit of a member that is none was refused: the loop is about to hear of that.
func (m *Member) outlawed(ctx context.Context, fault error) error {
	m.mu.Lock()
	m.wakeLocked()
	defer m.mu.Unlock()
	for m.end == nil && m.epoch > 0 && ctx.Err() == nil {
		changed := m.changed
		m.mu.Unlock()
		t := time.NewTimer(lastPause)
		over := false
		select {
		case <-changed:
		case <-ctx.Done():
		case <-t.C:
			over = true
		}
		t.Stop()
		m.mu.Lock()
		if over {
			break
		}
	}
	if err := m.goneLocked(); err != nil {
		return err
	}
	return fault
}

// commitRequest asks to commit what the member has still.
func (m *Member) commitRequest(list []commitOf) (client.GroupCommit, []*commitOf) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req := client.GroupCommit{Group: m.group, Member: m.id, Epoch: m.epoch}
	var sent []*commitOf
	for i := range list {
		c := &list[i]
		if m.partLocked(c.part.TopicPartition) != c.part {
			continue
		}
		sent = append(sent, c)
		req.Offsets = append(req.Offsets, client.CommittedOffset{
			TopicPartition: c.part.TopicPartition, Offset: c.offset, LeaderEpoch: -1, Metadata: c.metadata, From: c.from,
		})
	}
	return req, sent
}

// tookCommit takes in what came of a commit: an error that is about the member, or those of partitions.
func (m *Member) tookCommit(errs []error, sent []*commitOf) (fault, faults error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := make(map[client.TopicPartition]error)
	seeks := len(m.seeks)
	for i, c := range sent {
		tp := c.part.TopicPartition
		switch err := errs[i]; {
		case err == nil:
			c.part.committed, c.part.base, c.done = c.offset, c.offset, true
			delete(m.seeks, tp)
		case isMoved(err), isAny(err, kerr.UnknownTopicOrPartition, kerr.OffsetMetadataTooLarge, kerr.InvalidRequest,
			kerr.UnstableOffsetCommit):
			failed[tp] = err
		default:
			return err, nil
		}
	}
	m.commits = time.Now()
	if len(m.seeks) != seeks {
		m.version++
		m.wakeLocked()
	}
	if len(failed) > 0 {
		return nil, &partsError{failed}
	}
	return nil, nil
}

// Committed is what the group has committed for partitions, in their order; Offset is -1 where there is nothing.
func (m *Member) Committed(ctx context.Context, of []client.TopicPartition) ([]Offset, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	return m.committed(ctx, of)
}

func (m *Member) committed(ctx context.Context, of []client.TopicPartition) ([]Offset, error) {
	if len(of) == 0 {
		return nil, nil
	}
	found, err := m.parent.o.Client.Committed(ctx, m.group, true, of...)
	if err != nil {
		return nil, err
	}
	out := make([]Offset, len(of))
	for i := range found {
		o := &found[i]
		if o.Err != nil && !errors.Is(o.Err, kerr.UnknownTopicOrPartition) {
			return nil, o.Err
		}
		out[i] = Offset{TopicPartition: o.TopicPartition, Offset: o.Offset, Metadata: o.Metadata}
	}
	return out, nil
}
