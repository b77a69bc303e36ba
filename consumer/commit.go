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
	// leap is how far a node leaps beyond a number of another one: who gave it may have gone on from there, and a request
	// that came late may name an old one.
	leap = int64(time.Minute / time.Microsecond)
)

// Offset is the offset of a partition: that of the next record to read.
type Offset struct {
	client.TopicPartition
	Offset   int64
	Metadata string
}

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
			p.position = p.start
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

// Commit commits offsets of partitions that the member has; without any, the positions behind all that was handed
// out. The results are in the order of the offsets.
func (m *Member) Commit(ctx context.Context, offsets []Offset) ([]error, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	if offsets == nil {
		m.mu.Lock()
		m.cameLocked()
		m.mu.Unlock()
		return nil, m.commitHandedOut(ctx)
	}
	out := make([]error, len(offsets))
	var list []commitOf
	m.mu.Lock()
	for i := range offsets {
		switch p := m.partLocked(offsets[i].TopicPartition); {
		case p == nil:
			out[i] = ErrNotAssigned
		case offsets[i].Offset < 0:
			out[i] = bad("an offset is 0 or more, not %d", offsets[i].Offset)
		default:
			list = append(list, commitOf{p, offsets[i].Offset, offsets[i].Metadata})
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
		p := m.partLocked(offsets[i].TopicPartition)
		switch {
		case out[i] != nil || p == nil:
		case parts != nil && parts.of[p.TopicPartition] != nil:
			out[i] = parts.of[p.TopicPartition]
		case offsets[i].Offset >= p.position:
			p.handed = false
		case p.handed && offsets[i].Offset > p.start: // so much has come, whatever is said of the delivery
			p.start = offsets[i].Offset
		}
	}
	if len(m.revoking) > 0 {
		m.wakeLocked()
	}
	return out, nil
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
func (m *Member) commitRequest(list []commitOf) (client.GroupCommit, []commitOf) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req := client.GroupCommit{Group: m.group, Member: m.id, Epoch: m.epoch}
	var sent []commitOf
	for _, c := range list {
		if m.partLocked(c.part.TopicPartition) != c.part {
			continue
		}
		sent = append(sent, c)
		req.Offsets = append(req.Offsets, client.CommittedOffset{
			TopicPartition: c.part.TopicPartition, Offset: c.offset, LeaderEpoch: -1, Metadata: c.metadata,
		})
	}
	return req, sent
}

// tookCommit takes in what came of a commit: an error that is about the member, or those of partitions.
func (m *Member) tookCommit(errs []error, sent []commitOf) (fault, faults error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := make(map[client.TopicPartition]error)
	seeks := len(m.seeks)
	for i, c := range sent {
		tp := c.part.TopicPartition
		switch err := errs[i]; {
		case err == nil:
			c.part.committed = c.offset
			delete(m.seeks, tp)
		case isAny(err, kerr.UnknownTopicOrPartition, kerr.OffsetMetadataTooLarge, kerr.InvalidRequest):
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
		out[i] = Offset{o.TopicPartition, o.Offset, o.Metadata}
	}
	return out, nil
}
