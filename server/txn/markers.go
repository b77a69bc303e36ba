package txn

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of the requests with markers that a shard has under way. Markers for one leader that come while its
// requests are under way go out together in the next.
const (
	maxUnderWay = 4   // to one leader
	maxErrands  = 500 // in one request
	// markersTimeout is above what a leader waits for the commit of markers.
	markersTimeout = 20 * time.Second
)

// lane is the markers for the partitions of one leader.
type lane struct {
	queue    []*errand
	underWay int
}

// errand is the marker of one transaction for some partitions of one leader.
type errand struct {
	ending     *ending
	partitions partitions
	pause      time.Duration // before what fails is tried again
}

func (s *shard) enqueue(leader int32, d *errand) {
	l := s.lanes[leader]
	if l == nil {
		l = new(lane)
		s.lanes[leader] = l
	}
	l.queue = append(l.queue, d)
	s.pump(l)
}

// pump sends what waits, as far as it may.
func (s *shard) pump(l *lane) {
	for len(l.queue) > 0 && l.underWay < maxUnderWay {
		n := min(len(l.queue), maxErrands)
		batch := l.queue[:n:n]
		if l.queue = l.queue[n:]; len(l.queue) == 0 {
			l.queue = nil
		}
		l.underWay++
		req := s.markers(batch)
		s.run.Go(func(ctx context.Context) func() {
			ctx, cancel := context.WithTimeout(ctx, markersTimeout)
			defer cancel()
			resp, err := req.RequestWith(ctx, s.cfg.Cluster)
			return func() {
				l.underWay--
				s.digest(batch, resp, err)
				s.pump(l)
			}
		})
	}
}

func (s *shard) markers(batch []*errand) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = req.MaxVersion()
	for _, d := range batch {
		t := d.ending.txn
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.Committed = t.producerID, t.epoch, t.commits()
		m.CoordinatorEpoch, m.TransactionVersion = s.run.Epoch(), int8(min(t.version, clientVersion))
		if s.cfg.Flaws.SameEpoch {
			m.TransactionVersion = 1
		}
		for i := range d.partitions {
			topic := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			topic.Topic, topic.Partitions = d.partitions[i].topic, d.partitions[i].numbers
			m.Topics = append(m.Topics, topic)
		}
		req.Markers = append(req.Markers, m)
	}
	return req
}

// digest reads the answer to a request. What it leaves out is tried again, as is everything when there is no
// answer: the markers may have been written, and are not written twice.
func (s *shard) digest(batch []*errand, resp *kmsg.WriteTxnMarkersResponse, err error) {
	for i, d := range batch {
		if err != nil || i >= len(resp.Markers) || resp.Markers[i].ProducerID != d.ending.txn.producerID {
			s.marked(d, nil, d.partitions, false)
			continue
		}
		var done partitions
		fenced := false
		for _, t := range resp.Markers[i].Topics {
			for _, p := range t.Partitions {
				switch p.ErrorCode {
				case 0:
					done = done.with(t.Topic, p.Partition)
				case kerr.InvalidProducerEpoch.Code, kerr.TransactionCoordinatorFenced.Code:
					fenced = true
				}
			}
		}
		s.marked(d, done, d.partitions.minus(done), fenced)
	}
}

// minus leaves out what is in q.
func (p partitions) minus(q partitions) partitions {
	for i := range q {
		for _, number := range q[i].numbers {
			p = p.without(q[i].topic, number)
		}
	}
	return p
}
