package route

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

type (
	marker      = kmsg.WriteTxnMarkersRequestMarker
	markerTopic = kmsg.WriteTxnMarkersRequestMarkerTopic
	marked      = kmsg.WriteTxnMarkersResponseMarker
	markedTopic = kmsg.WriteTxnMarkersResponseMarkerTopic
	markedPart  = kmsg.WriteTxnMarkersResponseMarkerTopicPartition
)

func markersSplit() split[markerTopic, int32, markedTopic, markedPart] {
	return split[markerTopic, int32, markedTopic, markedPart]{
		topic:      func(t *markerTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *markerTopic) *[]int32 { return &t.Partitions },
		number:     func(p *int32) int32 { return *p },
		answered:   func(t *markedTopic) topicKey { return topicKey{name: t.Topic} },
		answers:    func(t *markedTopic) *[]markedPart { return &t.Partitions },
		answerOf:   func(p *markedPart) int32 { return p.Partition },
		code:       func(p *markedPart) int16 { return p.ErrorCode },
		newTopic:   func(k topicKey) markedTopic { return markedTopic{Topic: k.name} },
		unanswered: func(number int32, code int16) markedPart {
			p := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
			p.Partition, p.ErrorCode = number, code
			return p
		},
	}
}

// writeTxnMarkers routes WriteTxnMarkers. Markers of many transactions that are for one leader, as coordinators send
// them, are passed on as they are. Where leaders have moved each marker goes its own way. A marker that is there
// already is not written again.
func writeTxnMarkers() way {
	s := markersSplit()
	each := byLeaders(s, envelope[markerTopic, markedTopic]{
		asked: func(r kmsg.Request) []markerTopic { return r.(*kmsg.WriteTxnMarkersRequest).Markers[0].Topics },
		about: func(r kmsg.Request, topics []markerTopic) kmsg.Request {
			part := *r.(*kmsg.WriteTxnMarkersRequest)
			part.Markers = []marker{part.Markers[0]}
			part.Markers[0].Topics = topics
			return &part
		},
		answers: markedTopics,
	})
	return func(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
		req := request.(*kmsg.WriteTxnMarkersRequest)
		resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
		if len(req.Markers) == 0 {
			return resp, nil
		}
		if len(req.Markers) > 1 {
			if all := r.markAtOnce(ctx, &s, req); all != nil {
				return all, nil
			}
		}
		resp.Markers = make([]marked, len(req.Markers))
		errs := make([]error, len(req.Markers))
		var wg sync.WaitGroup
		for i := range req.Markers {
			wg.Go(func() {
				one := *req
				one.Markers = req.Markers[i : i+1]
				answer, err := each(ctx, r, &one)
				if errs[i] = err; err == nil {
					resp.Markers[i].ProducerID, resp.Markers[i].Topics = req.Markers[i].ProducerID, *markedTopics(answer)
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return nil, err
			}
		}
		return resp, nil
	}
}

// markedTopics are the topics in an answer about one marker.
func markedTopics(r kmsg.Response) *[]markedTopic {
	resp := r.(*kmsg.WriteTxnMarkersResponse)
	if len(resp.Markers) == 0 {
		resp.Markers = append(resp.Markers, kmsg.NewWriteTxnMarkersResponseMarker())
	}
	return &resp.Markers[0].Topics
}

// markAtOnce sends all markers to the one node that leads all of their partitions. It is nil where there is no such
// node, or not all is written.
func (r *Router) markAtOnce(ctx context.Context, s *split[markerTopic, int32, markedTopic, markedPart],
	req *kmsg.WriteTxnMarkersRequest) kmsg.Response {
	l, node := r.leaders(), metadata.NoLeader
	for i := range req.Markers {
		at, ok := s.whole(l, req.Markers[i].Topics)
		if !ok || i > 0 && at != node {
			return nil
		}
		node = at
	}
	to := r.node(node)
	if to == nil {
		return nil
	}
	var answer kmsg.Response
	var err error
	if node == r.cfg.NodeID {
		answer, err = to.Request(ctx, req)
	} else {
		answer, err = r.ask(ctx, to, req, budget, 0, func() bool {
			at, ok := s.whole(r.leaders(), req.Markers[0].Topics)
			return !ok || at != node
		})
	}
	if err != nil {
		return nil
	}
	got := answer.(*kmsg.WriteTxnMarkersResponse)
	if len(got.Markers) != len(req.Markers) {
		return nil
	}
	for i := range got.Markers {
		for _, t := range got.Markers[i].Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == kerr.NotLeaderForPartition.Code || p.ErrorCode == kerr.LeaderNotAvailable.Code {
					return nil
				}
			}
		}
	}
	return answer
}
