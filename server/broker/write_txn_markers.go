package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
	"millrace/server/partition"
)

// WriteTxnMarkers (key 27).
//
// The coordinator of a transaction ends it on the partitions led here. All markers of a request are appended first,
// then they are waited for together, as with acks=all: what is answered without an error is committed. Those for
// __consumer_offsets go through the group coordinator, so that whoever hears of the commit finds its offsets. Each
// partition is answered for itself; a marker that is there already is success.

// markerWait bounds the wait for markers to be committed. The coordinator asks again for what takes longer.
const markerWait = 15 * time.Second

// groupMarkers is how many markers a request has the group coordinator write at a time.
const groupMarkers = 32

// markerAnswer is the place for the answer about one marker on one partition.
type markerAnswer = kmsg.WriteTxnMarkersResponseMarkerTopicPartition

// markedPart is a marker that was appended and is waited for.
type markedPart struct {
	leader *partition.Leader
	at     partition.Appended
	answer *markerAnswer
}

func (b *Broker) handleWriteTxnMarkers(ctx context.Context, v *view,
	req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	resp := newMarkersResponse(req)
	w := markerWriter{broker: b, view: v, slots: make(chan struct{}, groupMarkers)}
	for i := range req.Markers {
		m := markerOf(&req.Markers[i])
		for j := range req.Markers[i].Topics {
			t := &req.Markers[i].Topics[j]
			for k := range t.Partitions {
				w.write(ctx, &m, t.Topic, &resp.Markers[i].Topics[j].Partitions[k])
			}
		}
	}
	w.await(ctx)
	w.groups.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return resp, nil
}

func markerOf(m *kmsg.WriteTxnMarkersRequestMarker) partition.Marker {
	return partition.Marker{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch, CoordinatorEpoch: m.CoordinatorEpoch,
		Commit: m.Committed, Version: m.TransactionVersion, Epoch: -1,
	}
}

// markerWriter is one such request at work.
type markerWriter struct {
	broker  *Broker
	view    *view
	waiting []markedPart
	groups  sync.WaitGroup
	slots   chan struct{} // one for each marker that the group coordinator writes
}

// write appends one marker, or has it appended.
func (w *markerWriter) write(ctx context.Context, m *partition.Marker, topic string, out *markerAnswer) {
	if topic == metadata.GroupTopic && w.broker.cfg.GroupMarker != nil {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		w.groups.Go(func() {
			defer func() { <-w.slots }()
			out.ErrorCode = code(w.broker.cfg.GroupMarker(ctx, out.Partition, m))
		})
		return
	}
	leader, err := w.view.leaderByName(topic, out.Partition)
	if err == nil {
		var at partition.Appended
		if at, err = leader.AppendMarker(ctx, m); err == nil {
			w.waiting = append(w.waiting, markedPart{leader, at, out})
			return
		}
		err = w.broker.unlessReplaced(leader.Name(), err)
	}
	out.ErrorCode = code(err)
}

// await waits until all markers are committed.
func (w *markerWriter) await(ctx context.Context) {
	if len(w.waiting) == 0 {
		return
	}
	b := w.broker
	b.awaiting.Add(1)
	defer b.awaited()
	one := b.waiters.Get().(*partition.Waiter)
	defer b.waiters.Put(one)
	one.Start(markerWait)
	defer one.Stop()
	for i := range w.waiting {
		p := &w.waiting[i]
		if err := p.leader.AwaitCommitted(ctx, one, &p.at); err != nil {
			p.answer.ErrorCode = code(b.unlessReplaced(p.leader.Name(), err))
		}
	}
}

// newMarkersResponse makes the answer with a place for each partition of the request.
func newMarkersResponse(req *kmsg.WriteTxnMarkersRequest) *kmsg.WriteTxnMarkersResponse {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(req.Markers))
	for i := range req.Markers {
		in, out := &req.Markers[i], &resp.Markers[i]
		out.ProducerID = in.ProducerID
		out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(in.Topics))
		for j := range in.Topics {
			out.Topics[j].Topic = in.Topics[j].Topic
			out.Topics[j].Partitions = make([]markerAnswer, len(in.Topics[j].Partitions))
			for k, number := range in.Topics[j].Partitions {
				out.Topics[j].Partitions[k].Partition = number
			}
		}
	}
	return resp
}
