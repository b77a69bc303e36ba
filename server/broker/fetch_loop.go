package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// fetchLoop fetches partitions of one leader: one request on its way at a time, for all of them,
// long-polling, and its answer written and synced before the next. The next fetch is the acknowledgement of
// the last.
//
// The loop's goroutine owns the partitions in it. OnImage and the fetcher's other loop add some through added;
// OnImage ends them through the feed. Nobody waits for the loop.
type fetchLoop struct {
	*fetcher
	wake  chan struct{} // there is something new, of capacity 1
	hurry atomic.Bool   // the leader may be reached again

	mu sync.Mutex
	// Guarded by mu.
	added     []*feed
	stale     bool                    // the next request was built without knowing all
	interrupt context.CancelCauseFunc // ends the request on its way; nil when there is none

	// Of the loop's goroutine.
	feeds    []*feed
	flowing  bool      // the last answer brought much: the next one is not to be interrupted
	parted   time.Time // when quiet ones among the busy ones were looked for last
	first    int       // the feed that the next request names first
	next     time.Time // the earliest time that a feed left out of the request is due; zero: none
	request  *kmsg.FetchRequest
	asked    []asking              // in the order of the request
	written  []*partition.Follower // whose part of the answer is to be synced
	rand     *rand.Rand
	patience time.Duration // for the next answer
	pause    time.Duration // the last back-off because the leader could not be reached; 0 when it was
}

// asking is one partition of the request on its way.
type asking struct {
	feed *feed
	pos  partition.FetchPosition
	most int
}

// Limits of the loop.
const (
	// fetchPatience is how long an answer may take beyond the time that the leader may wait. After one that took
	// longer it is twice as long, up to mostPatience: a connection that went dead is not waited for long, and one
	// that is slow is given time.
	fetchPatience = 2 * time.Second
	mostPatience  = 30 * time.Second
	// farBytes is what a partition that is far behind asks for.
	farBytes = 8 << 20
	// flowingBytes make an answer one that is too good to be given up for another partition; the next
	// request then waits for flowingWait at most, and is not interrupted.
	flowingBytes = 256 << 10
	flowingWait  = 50 * time.Millisecond
	// softBackOff is the first pause after an error that newer metadata will resolve, here or there.
	softBackOff = 100 * time.Millisecond
	// fullBackOff times replica.fetch.backoff.ms is the longest pause where there was no room: each try has the replica
	// join the ISR and leave it again.
	fullBackOff = 10
	// reachBackOff and mostReachBackOff are the pauses after a request that got no answer.
	reachBackOff     = 50 * time.Millisecond
	mostReachBackOff = time.Second
)

func newFetchLoop(f *fetcher) *fetchLoop {
	return &fetchLoop{
		fetcher: f, wake: make(chan struct{}, 1), request: kmsg.NewPtrFetchRequest(), patience: fetchPatience,
		rand: rand.New(rand.NewPCG(f.broker.cfg.Rand.Uint64(), f.broker.cfg.Rand.Uint64())),
	}
}

// add hands the loop more partitions, or news of those it has. A long poll on its way is given up, since it does not
// name them.
func (l *fetchLoop) add(feeds ...*feed) {
	l.mu.Lock()
	l.added, l.stale = append(l.added, feeds...), true
	interrupt := l.interrupt
	l.mu.Unlock()
	if interrupt != nil {
		interrupt(errAdded)
	}
	l.rouse()
}

func (l *fetchLoop) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *fetchLoop) run() {
	for l.ctx.Err() == nil {
		l.takeUp()
		now := time.Now()
		l.build(now)
		if len(l.asked) == 0 {
			l.rest(l.next)
			continue
		}
		err := l.round()
		for i := range l.asked {
			l.answered(l.asked[i].feed)
		}
		if err != nil {
			l.unreached(err)
			continue
		}
		l.part(time.Now())
	}
}

// answered says that no request names the partition any more.
func (l *fetchLoop) answered(f *feed) {
	if f.answered() {
		l.broker.isr.hurry() // it may resign now
	}
}

// part hands the partitions to the other loop that belong there by now. None of them is asked for.
func (l *fetchLoop) part(now time.Time) {
	if l == l.busy {
		if now.Sub(l.parted) < busyTime {
			return
		}
		l.parted = now
		l.move(l.quiet, func(f *feed) bool { return now.Sub(f.records) > quietTime })
	} else if len(l.feeds) > fewFeeds {
		l.move(l.busy, func(f *feed) bool { return f.rounds >= busyRounds && now.Sub(f.since) <= busyTime })
	}
}

func (l *fetchLoop) move(to *fetchLoop, which func(*feed) bool) {
	if !slices.ContainsFunc(l.feeds, which) {
		return
	}
	var moved []*feed
	l.feeds = slices.DeleteFunc(l.feeds, func(f *feed) bool {
		if which(f) {
			moved = append(moved, f)
			return true
		}
		return false
	})
	for _, f := range moved {
		f.rounds = 0
	}
	to.add(moved...)
}

// takeUp takes over the partitions that were added, and forgets those that have ended.
func (l *fetchLoop) takeUp() {
	l.mu.Lock()
	l.feeds = append(l.feeds, l.added...)
	l.added, l.stale = l.added[:0], false
	l.mu.Unlock()
	l.feeds = slices.DeleteFunc(l.feeds, (*feed).gone)
}

// rest waits until something is new or a time has come; the zero time never comes.
func (l *fetchLoop) rest(until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-l.ctx.Done():
	case <-l.wake:
	case <-due:
	}
}

// build fills the request with the partitions that are due, beginning with another one each time.
func (l *fetchLoop) build(now time.Time) {
	settings := l.broker.Image().Settings()
	l.asked, l.next = l.asked[:0], time.Time{}
	l.request.Topics = l.request.Topics[:0]
	budget, refill := l.broker.throttles.follower.open(now, settings.FollowerThrottleRate)
	for i := range l.feeds {
		f := l.feeds[(l.first+i)%len(l.feeds)]
		far, throttled := f.wants()
		if throttled && budget == 0 {
			l.waitUntil(now.Add(refill))
			continue
		}
		if ok, due := f.ask(now); !ok {
			l.waitUntil(due)
			continue
		}
		pos, ok := l.position(f, now)
		if !ok {
			l.answered(f)
			continue
		}
		most := settings.ReplicaFetchMaxBytes
		if far {
			most = max(most, farBytes)
		}
		if throttled {
			most = min(most, budget)
		}
		l.name(f, pos, most)
	}
	l.requestLimits(settings, now)
}

// requestLimits fills in what the request says beside partitions.
func (l *fetchLoop) requestLimits(s *metadata.BrokerSettings, now time.Time) {
	wait := s.ReplicaFetchWaitMax
	if l.flowing {
		wait = min(wait, flowingWait)
	}
	if !l.next.IsZero() {
		wait = max(min(wait, l.next.Sub(now)), 0)
	}
	r := l.request
	r.ReplicaID = l.broker.cfg.NodeID
	r.ReplicaState.ID, r.ReplicaState.Epoch = l.broker.cfg.NodeID, l.broker.Epoch()
	r.MaxWaitMillis = int32(wait.Milliseconds())
	r.MinBytes = int32(s.ReplicaFetchMinBytes)
	r.MaxBytes = int32(min(s.ReplicaFetchResponseMaxBytes, math.MaxInt32))
}

// waitUntil notes when a partition that is left out is due; the zero time is of one that only
// metadata can bring back.
func (l *fetchLoop) waitUntil(due time.Time) {
	if !due.IsZero() && (l.next.IsZero() || due.Before(l.next)) {
		l.next = due
	}
}

// position gives where a partition goes on, after a sync where the leader must not hear of what is not
// durable.
func (l *fetchLoop) position(f *feed, now time.Time) (partition.FetchPosition, bool) {
	pos, err := f.follower.Position()
	if errors.Is(err, partition.ErrUnsynced) {
		if err = f.follower.Sync(l.ctx); err == nil {
			pos, err = f.follower.Position()
		}
	}
	if err == nil {
		return pos, true
	}
	if l.ctx.Err() == nil {
		l.fault(f, now, err)
	}
	return pos, false
}

// name puts a partition into the request, whose memory is used again and again.
func (l *fetchLoop) name(f *feed, pos partition.FetchPosition, most int) {
	topics := l.request.Topics
	if n := len(topics); n == 0 || topics[n-1].TopicID != f.name.TopicID {
		topics = grow(topics)
		t := &topics[n]
		t.Topic, t.TopicID, t.Partitions = f.name.Topic, f.name.TopicID, t.Partitions[:0]
		l.request.Topics = topics
	}
	t := &topics[len(topics)-1]
	t.Partitions = grow(t.Partitions)
	p := &t.Partitions[len(t.Partitions)-1]
	p.Default()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = f.name.Partition, pos.Offset, int32(most)
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = pos.LeaderEpoch, pos.LastFetchedEpoch, pos.LogStart
	if pos.HasReaders {
		p.HighWatermark = pos.HighWatermark
	}
	p.UnknownTags = kmsg.Tags{}
	if pos.Unsettled {
		ktag.SetUnsettled(&p.UnknownTags)
	}
	l.asked = append(l.asked, asking{feed: f, pos: pos, most: most})
}

// grow makes a slice one longer, with what lies there from the last use.
func grow[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// errAdded ends a long poll for the sake of a partition that it does not name.
var errAdded = errors.New("a partition was added")

// round sends the request and deals with the answer. An error means that there was none.
func (l *fetchLoop) round() error {
	arena := l.broker.pool.Arena()
	defer arena.Free()
	ctx, interrupt := context.WithCancelCause(record.WithArena(l.ctx, arena))
	defer interrupt(nil)
	began, wait := time.Now(), time.Duration(l.request.MaxWaitMillis)*time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, wait+l.patience)
	defer cancel()
	peer := l.broker.cfg.Peer(l.leader)
	if peer == nil {
		return errNoWay
	}
	if !l.flowing && !l.begin(interrupt) {
		return nil // something was added since: build anew
	}
	resp, err := l.request.RequestWith(ctx, peer)
	l.begin(nil)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errAdded):
		return nil
	case err != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			l.patience = min(2*l.patience, mostPatience)
		}
		return err
	case resp.ErrorCode != 0:
		return fmt.Errorf("fetch refused: %w", kerr.ErrorForCode(resp.ErrorCode))
	}
	l.patience = min(max(2*(time.Since(began)-wait), fetchPatience), mostPatience)
	l.reached()
	return l.take(resp)
}

// errNoWay says that the address of the leader is not known.
var errNoWay = errors.New("no way to that broker is known")

// begin lets add interrupt the request that is about to go out; nil: none is. It is false when
// something was added already.
func (l *fetchLoop) begin(interrupt context.CancelCauseFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if interrupt != nil && l.stale {
		return false
	}
	l.interrupt = interrupt
	return true
}

// take gives each partition its part of the answer, which is in the order of the request, and asks for
// the sync of all that was written.
func (l *fetchLoop) take(resp *kmsg.FetchResponse) error {
	i, bytes, now := 0, 0, time.Now()
	l.written = l.written[:0]
	last := -1
	for t := range resp.Topics {
		topic := &resp.Topics[t]
		for p := range topic.Partitions {
			part := &topic.Partitions[p]
			if i == len(l.asked) || l.asked[i].feed.name.TopicID != topic.TopicID ||
				l.asked[i].feed.name.Partition != part.Partition {
				return errors.New("the answer is about other partitions than the request")
			}
			l.takePart(&l.asked[i], part, now)
			if len(part.RecordBatches) > 0 {
				last, bytes = i, bytes+len(part.RecordBatches)
			}
			i++
		}
	}
	for _, f := range l.written {
		f.RequestSync()
	}
	clear(l.written)
	l.saveStarts(now)
	l.flowing = bytes >= flowingBytes
	l.first += last + 1
	if len(l.feeds) > 0 {
		l.first %= len(l.feeds)
	}
	if i < len(l.asked) {
		return errors.New("the answer lacks partitions of the request")
	}
	return nil
}

// saveStarts saves the log starts that the answer has raised, all at once. The next fetch tells the leader what is
// saved.
func (l *fetchLoop) saveStarts(now time.Time) {
	unsaved := func(a asking) bool { return a.feed.follower.StartUnsaved() }
	if !slices.ContainsFunc(l.asked, unsaved) {
		return
	}
	if err := l.broker.cfg.Store.SaveLogStarts(); err != nil {
		for i := range l.asked {
			if unsaved(l.asked[i]) {
				l.fault(l.asked[i].feed, now, err)
			}
		}
	}
}

// takePart gives one partition its part of the answer.
func (l *fetchLoop) takePart(a *asking, part *kmsg.FetchResponseTopicPartition, now time.Time) {
	if part.ErrorCode != 0 && part.ErrorCode != kerr.OffsetOutOfRange.Code {
		l.refused(a.feed, part.ErrorCode, now)
		return
	}
	got := partition.LeaderAnswer{
		ErrorCode: part.ErrorCode, HighWatermark: part.HighWatermark, LogStart: part.LogStartOffset,
		Records: part.RecordBatches, Settled: ktag.Settled(&part.UnknownTags),
	}
	if d := part.DivergingEpoch; d.Epoch >= 0 || d.EndOffset >= 0 {
		got.Diverging = &partition.EpochEnd{Epoch: d.Epoch, EndOffset: d.EndOffset}
	}
	l.broker.metrics.replicated(len(part.RecordBatches))
	if a.feed.slow() {
		l.broker.throttles.follower.take(len(part.RecordBatches))
	}
	outcome, err := a.feed.follower.Take(a.pos, got)
	switch outcome {
	case partition.Taken, partition.NeedsSync:
		// Far behind no sync is needed yet; it is asked for all the same, so that the last one is not long.
		if len(part.RecordBatches) > 0 || outcome == partition.NeedsSync {
			l.written = append(l.written, a.feed.follower)
			a.feed.came(now)
		}
	case partition.OutOfRange:
		err = l.restart(a)
	case partition.Corrupt:
		l.refused(a.feed, kerr.CorruptMessage.Code, now)
		return
	case partition.Retry, partition.Stop:
		if err == nil {
			l.refused(a.feed, kerr.FencedLeaderEpoch.Code, now) // until the metadata says more
			return
		}
	}
	if err != nil {
		l.fault(a.feed, now, err)
		return
	}
	if a.feed.taken(2*len(part.RecordBatches) > a.most) {
		l.info("partition is fetched again", a.feed)
	}
}

// refused keeps a partition out of the requests for a while, because of what its leader answered.
func (l *fetchLoop) refused(f *feed, code int16, now time.Time) {
	first, most := l.broker.Image().Settings().ReplicaFetchBackoff, l.broker.Image().Settings().ReplicaFetchBackoff
	passing := passes(code)
	if passing {
		first = min(softBackOff, most)
	}
	if f.backOff(now, code, first, most) && !passing {
		l.broker.cfg.Logger.Warn("partition cannot be fetched", "topic", f.name.Topic, "partition", f.name.Partition,
			"leader", l.leader, "err", kerr.ErrorForCode(code))
	}
}

// passes tells of an error that is over when this node or the leader has newer metadata.
func passes(code int16) bool {
	switch code {
	case kerr.NotLeaderForPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code,
		kerr.UnknownTopicOrPartition.Code, kerr.LeaderNotAvailable.Code, kerr.UnknownTopicID.Code,
		kerr.InconsistentTopicID.Code:
		return true
	}
	return false
}

// fault keeps a partition out of the requests whose own log cannot go on.
func (l *fetchLoop) fault(f *feed, now time.Time, err error) {
	first, most := softBackOff, l.broker.Image().Settings().ReplicaFetchBackoff
	if what, lost := plightOf(err); lost && what == full {
		most *= fullBackOff
	}
	r := explain(err)
	if f.fault(now, r.Code, min(first, most), most) && r.Code != kerr.NotLeaderForPartition.Code {
		l.broker.cfg.Logger.Error("log of a follower cannot go on", "topic", f.name.Topic,
			"partition", f.name.Partition, "err", err)
	}
	l.broker.noticed(f.name, err)
}

func (l *fetchLoop) info(what string, f *feed) {
	l.broker.cfg.Logger.Info(what, "topic", f.name.Topic, "partition", f.name.Partition, "leader", l.leader)
}

// restart finds a log anew that its leader's does not meet any more.
func (l *fetchLoop) restart(a *asking) error {
	start, err := l.leaderOffset(a, timeEarliest)
	if err != nil {
		return err
	}
	end, err := l.leaderOffset(a, timeLatest)
	if err != nil {
		return err
	}
	return a.feed.follower.Restart(start, end)
}

// The special timestamps of ListOffsets that a follower uses.
const (
	timeLatest   = -1
	timeEarliest = -2
)

// leaderOffset asks the leader for an end of its log.
func (l *fetchLoop) leaderOffset(a *asking, timestamp int64) (int64, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.patience)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = l.broker.cfg.NodeID
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = a.feed.name.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = a.feed.name.Partition, a.pos.LeaderEpoch, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	peer := l.broker.cfg.Peer(l.leader)
	if peer == nil {
		return 0, errNoWay
	}
	resp, err := req.RequestWith(ctx, peer)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the answer is about other partitions than the request")
	}
	out := &resp.Topics[0].Partitions[0]
	return out.Offset, kerr.ErrorForCode(out.ErrorCode)
}

// reached notes that the leader answers.
func (l *fetchLoop) reached() {
	if l.pause > 0 && l.down.Swap(false) {
		l.broker.cfg.Logger.Info("leader can be reached again", "node", l.leader)
	}
	l.pause = 0
}

// unreached notes that the leader does not answer, and waits before the next try, longer each time.
func (l *fetchLoop) unreached(err error) {
	if l.ctx.Err() != nil {
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		l.broker.Refused(l.leader)
	}
	if !l.down.Swap(true) {
		l.broker.cfg.Logger.Warn("leader cannot be fetched from", "node", l.leader, "err", err)
	}
	l.pause = min(max(2*l.pause, reachBackOff), mostReachBackOff)
	timer := time.NewTimer(l.pause/2 + time.Duration(l.rand.Int64N(int64(l.pause/2))))
	defer timer.Stop()
	for !l.hurry.Swap(false) {
		select {
		case <-l.ctx.Done():
			return
		case <-timer.C:
			return
		case <-l.wake: // what was added waits as well, unless the leader is back
		}
	}
}
