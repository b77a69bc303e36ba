package task

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/internal/ktag"
	"millrace/record"
)

// Bounds of a fetch. One is in hand while the next is under way.
const (
	fetchBytes     = 4 << 20
	fetchPartBytes = fetchBytes // of one partition: the next answer begins with another
	fetchWait      = 500 * time.Millisecond
	maxExpanded    = 64 << 20 // of one compressed batch
	partPause      = 200 * time.Millisecond
)

// place is where a partition is read, for one fetch.
type place struct {
	part   *sinkPart
	offset int64
	turn   int // of the part, when the fetch began
}

// fetched is what a fetch brought of one partition.
type fetched struct {
	place
	batches []byte
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	end     int64 // where the next fetch begins
	hw, lso int64
	err     error
}

// fetcher has one fetch under way at most. It is used by one goroutine.
type fetcher struct {
	requests    kmsg.Requestor
	uncommitted bool
	wg          sync.WaitGroup
	cancel      context.CancelFunc // of the fetch under way, nil: there is none
	done        chan answer
	rounds      int
}

// answer is what came of a fetch.
type answer struct {
	parts []*fetched
	err   error
}

// start begins a fetch.
func (f *fetcher) start(ctx context.Context, places []place) {
	req := f.request(places)
	ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() {
		resp, err := req.RequestWith(ctx, f.requests)
		if err == nil && resp.ErrorCode != 0 {
			e := kerr.TypedErrorForCode(resp.ErrorCode)
			err = client.Fault(e, "%s", e.Description)
		} else if err != nil {
			err = fmt.Errorf("fetch: %w: %w", client.ErrNoAnswer, err)
		}
		a := answer{err: err}
		if err == nil {
			a.parts = read(places, resp)
		}
		f.done <- a
	})
}

// under says whether a fetch is under way.
func (f *fetcher) under() bool { return f.cancel != nil }

// took takes note that the answer was received.
func (f *fetcher) took() {
	f.cancel()
	f.cancel = nil
	f.wg.Wait()
}

// stop ends the fetch under way. What it brought is lost.
func (f *fetcher) stop() {
	if f.cancel != nil {
		f.cancel()
		<-f.done
		f.took()
	}
}

// request asks for what there is of partitions. Another one comes first each time, since the first with records may
// take all the room.
func (f *fetcher) request(places []place) *kmsg.FetchRequest {
	f.rounds++
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b place) int { return a.part.Compare(b.part.TopicPartition) })
	first := f.rounds % len(places)
	for first > 0 && places[first].part.Topic == places[first-1].part.Topic {
		first-- // a topic is named once
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(fetchWait.Milliseconds()), 1, fetchBytes, -1
	if !f.uncommitted {
		req.IsolationLevel = 1
	}
	for i := range places {
		p := places[(first+i)%len(places)]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.part.Topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.part.Topic, p.part.topicID
			req.Topics = append(req.Topics, t)
		}
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.part.Partition, p.offset, fetchPartBytes
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, fp)
	}
	for i := range req.Topics {
		if p := req.Topics[i].Partitions; len(p) > 1 {
			n := f.rounds % len(p)
			req.Topics[i].Partitions = append(slices.Clone(p[n:]), p[:n]...)
		}
	}
	return req
}

// read reads an answer.
func read(places []place, resp *kmsg.FetchResponse) (out []*fetched) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			at := slices.IndexFunc(places, func(x place) bool {
				named := t.Topic == x.part.Topic || t.Topic == "" && t.TopicID == x.part.topicID
				return named && x.part.Partition == p.Partition
			})
			if at < 0 {
				continue
			}
			g := &fetched{place: places[at], batches: p.RecordBatches, aborted: p.AbortedTransactions}
			g.end, g.hw, g.lso = g.offset, p.HighWatermark, p.LastStableOffset
			g.err = partFault(g, p)
			g.measure()
			out = append(out, g)
		}
	}
	return out
}

// partFault is what is wrong with a partition of an answer.
func partFault(g *fetched, p *kmsg.FetchResponseTopicPartition) error {
	e := kerr.TypedErrorForCode(client.FetchCode(p, g.offset))
	if e == nil {
		return nil
	}
	f := client.Fault(e, "%s", e.Description)
	f.Topic, f.Partition = g.part.Topic, g.part.Partition
	if at, ok := ktag.ResumeOffset(&p.UnknownTags); ok {
		f.ResumeOffset = at
	}
	return f
}

// measure finds where the batches end.
func (g *fetched) measure() {
	for rest := g.batches; ; {
		b, left, err := record.Next(rest)
		if err != nil {
			return // cut short, or damaged, which is found when it is read
		}
		g.end, rest = max(g.end, b.NextOffset()), left
	}
}
