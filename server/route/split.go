package route

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// topicKey names a topic as a message does: by name, by id, or by both.
type topicKey struct {
	name string
	id   [16]byte
}

// split says where the partitions stand in the topics of one key's messages. QT and QP are the request's
// topic and partition, ST and SP the response's.
type split[QT, QP, ST, SP any] struct {
	topic      func(*QT) topicKey
	partitions func(*QT) *[]QP
	number     func(*QP) int32

	answered   func(*ST) topicKey
	answers    func(*ST) *[]SP
	answerOf   func(*SP) int32
	newTopic   func(topicKey) ST
	unanswered func(number int32, code int16) SP
}

// leaders looks up who leads partitions, in one image.
type leaders struct {
	image *metadata.Image
	self  int32
}

func (l leaders) topic(t topicKey) *metadata.Topic {
	if t.id != ([16]byte{}) {
		return l.image.TopicByID(t.id)
	}
	return l.image.Topic(t.name)
}

// of is the leader of a partition. What does not exist goes to this node, which says so.
func (l leaders) of(topic *metadata.Topic, number int32) int32 {
	if topic == nil || number < 0 || int(number) >= len(topic.Partitions) {
		return l.self
	}
	return topic.Partitions[number].Leader
}

func (r *Router) leaders() leaders { return leaders{image: r.cfg.Image(), self: r.cfg.NodeID} }

// whole is the way to the one node that leads all partitions of a request, or nil when there is no
// such node or no way. A request without partitions is for this node.
func (s *split[QT, QP, ST, SP]) whole(r *Router, l leaders, topics []QT) kmsg.Requestor {
	id, first := l.self, true
	for i := range topics {
		topic, parts := l.topic(s.topic(&topics[i])), *s.partitions(&topics[i])
		for j := range parts {
			leader := l.of(topic, s.number(&parts[j]))
			if first {
				id, first = leader, false
			}
			if leader != id {
				return nil
			}
		}
	}
	return r.node(id)
}

// share is the part of a request that one node leads.
type share[QT, ST any] struct {
	leader int32
	topics []QT
	answer []ST
	code   int16 // why there is no answer
}

// byLeader takes the request apart. The shares stand in the order in which their leaders first come
// up; within one the order is the request's.
func (s *split[QT, QP, ST, SP]) byLeader(l leaders, topics []QT) []*share[QT, ST] {
	var shares []*share[QT, ST]
	for i := range topics {
		topic := l.topic(s.topic(&topics[i]))
		cut := make(map[int32]*[]QP) // of this topic, by leader
		for _, p := range *s.partitions(&topics[i]) {
			leader := l.of(topic, s.number(&p))
			if cut[leader] == nil {
				var to *share[QT, ST]
				shares, to = shareOf(shares, leader)
				to.topics = append(to.topics, topics[i])
				parts := s.partitions(&to.topics[len(to.topics)-1])
				*parts = nil
				cut[leader] = parts
			}
			*cut[leader] = append(*cut[leader], p)
		}
	}
	return shares
}

func shareOf[QT, ST any](shares []*share[QT, ST], leader int32) ([]*share[QT, ST], *share[QT, ST]) {
	for _, s := range shares {
		if s.leader == leader {
			return shares, s
		}
	}
	s := &share[QT, ST]{leader: leader}
	return append(shares, s), s
}

// ask sends each share to its leader, all at once, and waits for all answers. send fills in what the
// leader answered.
func ask[QT, ST any](ctx context.Context, r *Router, shares []*share[QT, ST],
	send func(context.Context, kmsg.Requestor, *share[QT, ST]) error) {
	var wg sync.WaitGroup
	for _, s := range shares {
		wg.Go(func() {
			to := r.node(s.leader)
			if to == nil {
				s.code = kerr.LeaderNotAvailable.Code
				return
			}
			if err := send(ctx, to, s); err != nil {
				s.code = kerr.NetworkException.Code // it may have been done all the same
			}
		})
	}
	wg.Wait()
}

// merge puts the answers together in the order of the request. A partition that an answer leaves out
// counts as not answered.
func (s *split[QT, QP, ST, SP]) merge(topics []QT, l leaders, shares []*share[QT, ST]) []ST {
	merged := make([]ST, len(topics))
	for i := range topics {
		key := s.topic(&topics[i])
		topic := l.topic(key)
		merged[i] = s.newTopic(key)
		out := s.answers(&merged[i])
		for _, p := range *s.partitions(&topics[i]) {
			number := s.number(&p)
			_, from := shareOf(shares, l.of(topic, number))
			if a := s.find(from.answer, key, number); a != nil {
				*out = append(*out, *a)
				continue
			}
			code := from.code
			if code == 0 {
				code = kerr.UnknownServerError.Code
			}
			*out = append(*out, s.unanswered(number, code))
		}
	}
	return merged
}

// find looks for one partition in an answer, which may name topics by name or by id alone.
func (s *split[QT, QP, ST, SP]) find(answer []ST, key topicKey, number int32) *SP {
	for i := range answer {
		got := s.answered(&answer[i])
		byID := got.id != ([16]byte{}) && got.id == key.id
		byName := got.name != "" && got.name == key.name
		if !byID && !byName {
			continue
		}
		parts := *s.answers(&answer[i])
		for j := range parts {
			if s.answerOf(&parts[j]) == number {
				return &parts[j]
			}
		}
	}
	return nil
}
