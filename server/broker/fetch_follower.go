package broker

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
	"millrace/server/metadata"
	"millrace/server/partition"
)

// Fetch (key 1), of followers: a request whose ReplicaState names a broker.
//
// The offset at which a follower fetches a partition acknowledges what lies before it, so the request
// itself may raise the high watermark. Partitions are named by topic id, since a name could mean an older
// topic. The answer comes at once when there is an error, a divergence, a record that somebody waits for, much to
// send, a new log start, or something for a replica that is not in sync. Else it comes when something is appended that
// somebody waits for, a few milliseconds after there is something that nobody waits for, when somebody waits for the
// follower to save a log start, when the follower's readers lag behind the high watermark, or after MaxWaitMillis.

// linger is how long records that nobody waits for are collected before a follower is answered, unless they
// are lingerBytes by then.
const (
	linger      = 5 * time.Millisecond
	lingerBytes = 64 << 10
)

// maxFollowerBytes bounds one answer whatever the request says.
const maxFollowerBytes = 64 << 20

// followerFetch is one such request at work. It is used again for later ones.
type followerFetch struct {
	broker *Broker
	view   *view
	req    *kmsg.FetchRequest
	resp   *kmsg.FetchResponse
	alloc  func(n int) []byte
	parts  []fetchedPart
	size   int           // bytes of records in resp
	urgent bool          // something in the answer is not to wait
	slow   time.Duration // the throttle opens then; 0: it held nothing back
}

// fetchedPart is what the fetch saw of one partition; leader is nil where there is nothing to watch.
type fetchedPart struct {
	leader *partition.Leader
	// seen is what is no news; the log end is that of the follower if it lacks something.
	seen partition.Seen
}

func (b *Broker) handleFollowerFetch(ctx context.Context, v *view,
	req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	f := b.followerFetches.Get().(*followerFetch)
	defer f.release()
	f.broker, f.view, f.req, f.resp = b, v, req, newFetchResponse(req)
	if arena := record.ArenaFrom(ctx); arena != nil {
		f.alloc = arena.Alloc
	}
	f.read()
	if !f.urgent && f.size < lingerBytes && req.MaxWaitMillis > 0 {
		if err := f.wait(ctx); err != nil {
			return nil, err
		}
	}
	b.metrics.fed(f.size)
	return f.resp, nil
}

func (f *followerFetch) release() {
	b := f.broker
	clear(f.parts)
	*f = followerFetch{parts: f.parts[:0]}
	b.followerFetches.Put(f)
}

// read fills the answer from the partitions.
func (f *followerFetch) read() {
	f.size, f.urgent, f.slow, f.parts = 0, false, 0, f.parts[:0]
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		topic, hosted := f.view.image.TopicByID(t.TopicID), f.view.hosted(t.TopicID)
		for j := range t.Partitions {
			out := &f.resp.Topics[i].Partitions[j]
			leader, err := followed(topic, hosted, t.Partitions[j].Partition)
			if err == nil {
				err = f.partition(leader, topic, &t.Partitions[j], out)
			} else {
				f.parts = append(f.parts, fetchedPart{})
				f.unopened(topic, t.Partitions[j].Partition, err)
			}
			if err != nil {
				f.refuse(topic, out, err)
			}
		}
	}
}

// unopened takes note that a follower is there for a partition whose log here could not be opened.
func (f *followerFetch) unopened(t *metadata.Topic, number int32, err error) {
	if _, lost := plightOf(err); lost {
		f.broker.noticed(partition.Name{Topic: t.Name, TopicID: t.ID, Partition: number}, err)
	}
}

// followed finds a partition that this node leads.
func followed(t *metadata.Topic, h *hosted, number int32) (*partition.Leader, error) {
	switch {
	case t == nil:
		return nil, kerr.UnknownTopicID
	case number < 0 || int(number) >= len(t.Partitions):
		return nil, kerr.UnknownTopicOrPartition
	case h == nil || int(number) >= len(h.parts):
		return nil, kerr.NotLeaderForPartition
	case h.parts[number].leader != nil:
		return h.parts[number].leader, nil
	case h.parts[number].err != nil:
		return nil, h.parts[number].err
	}
	return nil, kerr.NotLeaderForPartition
}

// partition reads one partition.
func (f *followerFetch) partition(leader *partition.Leader, t *metadata.Topic, in *kmsg.FetchRequestTopicPartition,
	out *kmsg.FetchResponseTopicPartition) error {
	limit := min(max(int(f.req.MaxBytes), 0), maxFollowerBytes)
	most := min(max(int(in.PartitionMaxBytes), 0), max(limit-f.size, 0))
	slow := f.throttle(t, in.Partition, &most)
	got, err := leader.FetchFollower(partition.FollowerFetch{
		Replica: f.req.ReplicaState.ID, BrokerEpoch: f.req.ReplicaState.Epoch, Offset: in.FetchOffset,
		LeaderEpoch: in.CurrentLeaderEpoch, LastFetchedEpoch: in.LastFetchedEpoch, LogStart: in.LogStartOffset,
		HighWatermark: in.HighWatermark, Unsettled: ktag.Unsettled(&in.UnknownTags), MaxBytes: most, Alloc: f.alloc,
		BoundsOnly: most == 0,
	})
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = got.HighWatermark, got.LastStable, got.LogStart
	f.parts = append(f.parts, fetchedPart{leader: leader, seen: partition.Seen{
		LogEnd: got.LogEnd, LogStart: in.LogStartOffset, HighWatermark: in.HighWatermark, Unsettled: got.Unsettled,
	}})
	if err != nil {
		f.broker.noticed(leader.Name(), err)
		return err
	}
	if d := got.Diverging; d != nil {
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = d.Epoch, d.EndOffset
		f.urgent = true
		return nil
	}
	if got.Settled {
		ktag.SetSettled(&out.UnknownTags)
		f.urgent = true
	}
	if in.FetchOffset == got.LogEnd && in.LogStartOffset >= 0 && in.LogStartOffset < got.LogStart {
		f.urgent = true // nothing else may bring it the log start for long
	}
	out.RecordBatches = got.Records
	if f.size > 0 && len(got.Records) > most {
		out.RecordBatches = got.Records[:most:most] // only the first batch of all may exceed its limit
	}
	f.size += len(out.RecordBatches)
	if slow {
		f.broker.throttles.leader.take(len(out.RecordBatches))
	}
	if len(out.RecordBatches) > 0 {
		f.parts[len(f.parts)-1].seen.LogEnd = in.FetchOffset
		f.urgent = f.urgent || leader.Awaited() || !slices.Contains(t.Partitions[in.Partition].ISR, f.req.ReplicaState.ID)
	}
	return nil
}

// throttle lowers most where the replica is one that the topic throttles and that is not in sync.
func (f *followerFetch) throttle(t *metadata.Topic, number int32, most *int) bool {
	if !t.Settings.ThrottledLeader.Has(number, f.req.ReplicaState.ID) ||
		slices.Contains(t.Partitions[number].ISR, f.req.ReplicaState.ID) {
		return false
	}
	bytes, wait := f.broker.throttles.leader.open(time.Now(), f.view.image.Settings().LeaderThrottleRate)
	if bytes == 0 {
		f.slow = wait
	}
	*most = min(*most, bytes)
	return true
}

// refuse gives a partition an error, and who leads it as far as this node knows.
func (f *followerFetch) refuse(t *metadata.Topic, out *kmsg.FetchResponseTopicPartition, err error) {
	out.ErrorCode, out.RecordBatches = code(err), nil
	sayLeader(t, out)
	f.urgent = true
}

// wait sleeps until there is a reason to answer, and reads once more then.
func (f *followerFetch) wait(ctx context.Context) error {
	limit := time.Duration(f.req.MaxWaitMillis) * time.Millisecond
	if f.slow > 0 {
		limit = min(limit, f.slow)
	}
	w := f.broker.waiters.Get().(*partition.Waiter)
	defer f.broker.waiters.Put(w)
	w.Linger(linger)
	w.Start(limit)
	defer w.Stop()
	err := f.watch(w)
	if err == nil {
		err = w.Wait(ctx)
	}
	w.Leave()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == partition.ErrTimeout && f.slow == 0:
		return nil // nothing happened: the answer stands
	}
	// Whoever is ready to append does so first and goes with this answer: a fetch costs as much for one record as for
	// many.
	runtime.Gosched()
	f.view = f.broker.view.Load()
	f.read()
	return nil
}

// watch registers the waiter with all partitions.
func (f *followerFetch) watch(w *partition.Waiter) error {
	k := 0
	for i := range f.req.Topics {
		for range f.req.Topics[i].Partitions {
			p := &f.parts[k]
			k++
			if p.leader == nil {
				continue
			}
			if err := p.leader.WatchAppends(w, p.seen); err != nil {
				return err
			}
		}
	}
	return nil
}
