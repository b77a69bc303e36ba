package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
)

const (
	commitTries = 10
	commitPause = 50 * time.Millisecond
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

// seenLocked is cameLocked for a client that says which delivery it had last. Where that is not the last one, its answer
// was lost, and what it held is handed out again.
func (m *Member) seenLocked(seen int64) error {
	if seen > m.delivery {
		return ErrBadSeen
	}
	for _, p := range m.parts {
		if seen < m.delivery && p.handed && p.delivery == m.delivery {
			p.position = p.start
		}
	}
	for _, p := range m.revoking {
		if seen < m.delivery && p.handed && p.delivery == m.delivery {
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

// Commit commits offsets of partitions that the member has; without any, the positions behind all that was handed out.
// The results are in the order of the offsets.
func (m *Member) Commit(ctx context.Context, offsets []Offset) ([]error, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.exit()
	if err := m.take(ctx); err != nil {
		return nil, err
	}
	defer m.give()
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
		resp, err := req.RequestWith(ctx, m.parent.o.Requests)
		if err != nil {
			return noAnswer("commit of group "+m.group, err)
		}
		e, faults := m.tookCommit(resp, sent)
		switch {
		case e == nil && faults == nil:
			return nil
		case e == nil:
			return faults
		case e == kerr.UnknownMemberID, e == kerr.GroupIDNotFound, e == kerr.FencedMemberEpoch, e == kerr.IllegalGeneration:
			return m.outlawed(ctx, e)
		case e != kerr.StaleMemberEpoch && e != kerr.RebalanceInProgress || try == commitTries:
			return client.Fault(e, "offsets of group %q could not be committed: %s", m.group, e.Description)
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

// outlawed is why a commit of a member that is none was refused: the loop is about to hear of that.
func (m *Member) outlawed(ctx context.Context, e *kerr.Error) error {
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
	return client.Fault(e, "%s", e.Description)
}

// commitRequest asks to commit what the member has still.
func (m *Member) commitRequest(list []commitOf) (*kmsg.OffsetCommitRequest, []commitOf) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID = m.group, m.id
	m.mu.Lock()
	defer m.mu.Unlock()
	req.Generation = m.epoch
	var sent []commitOf
	for _, c := range list {
		if m.partLocked(c.part.TopicPartition) == c.part {
			sent = append(sent, c)
		}
	}
	slices.SortFunc(sent, func(a, b commitOf) int { return a.part.Compare(b.part.TopicPartition) })
	for _, c := range sent {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != c.part.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = c.part.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = c.part.Partition, c.offset, kmsg.StringPtr(c.metadata)
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return req, sent
}

// tookCommit takes in the answer to a commit: the error that is about the member, or those of partitions.
func (m *Member) tookCommit(resp *kmsg.OffsetCommitResponse, sent []commitOf) (*kerr.Error, error) {
	codes := make(map[client.TopicPartition]int16)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			codes[client.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := make(map[client.TopicPartition]error)
	seeks := len(m.seeks)
	for _, c := range sent {
		tp := c.part.TopicPartition
		code, ok := codes[tp]
		switch e := kerr.TypedErrorForCode(code); {
		case !ok:
			failed[tp] = noAnswer("commit of "+tp.String(), errMissing)
		case e == nil:
			c.part.committed = c.offset
			delete(m.seeks, tp)
		case e == kerr.UnknownTopicOrPartition, e == kerr.OffsetMetadataTooLarge, e == kerr.InvalidRequest:
			f := client.Fault(e, "%s", e.Description)
			f.Topic, f.Partition = tp.Topic, tp.Partition
			failed[tp] = f
		default:
			return e, nil
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
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = m.group
	byTopic := slices.Clone(of)
	slices.SortFunc(byTopic, client.TopicPartition.Compare)
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	for _, tp := range slices.Compact(byTopic) {
		if n := len(g.Topics); n == 0 || g.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic = tp.Topic
			g.Topics = append(g.Topics, t)
		}
		t := &g.Topics[len(g.Topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, m.parent.o.Requests)
	if err != nil {
		return nil, noAnswer("committed offsets of group "+m.group, err)
	}
	if len(resp.Groups) != 1 {
		return nil, noAnswer("committed offsets of group "+m.group, errMissing)
	}
	if e := kerr.TypedErrorForCode(resp.Groups[0].ErrorCode); e != nil {
		return nil, client.Fault(e, "the committed offsets of group %q could not be read: %s", m.group, e.Description)
	}
	found := make(map[client.TopicPartition]Offset)
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			tp := client.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			switch e := kerr.TypedErrorForCode(p.ErrorCode); e {
			case nil, kerr.UnknownTopicOrPartition:
			default:
				return nil, client.Fault(e, "the committed offset of %v could not be read: %s", tp, e.Description)
			}
			o := Offset{TopicPartition: tp, Offset: p.Offset}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			found[tp] = o
		}
	}
	out := make([]Offset, len(of))
	for i, tp := range of {
		o, ok := found[tp]
		if !ok {
			return nil, noAnswer("committed offset of "+tp.String(), errMissing)
		}
		out[i] = o
	}
	return out, nil
}
