package route

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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
	// repeatable says that asking twice does no harm; nil: it never does.
	repeatable func(*QP) bool
	// claims is the leader epoch that a request names, -1: none; nil for requests that never do.
	claims func(*QP) int32

	answered   func(*ST) topicKey
	answers    func(*ST) *[]SP
	answerOf   func(*SP) int32
	code       func(*SP) int16
	newTopic   func(topicKey) ST
	unanswered func(number int32, code int16) SP
	// notWritten says that a node refused to append although the code leaves that open; nil for requests that do
	// not append.
	notWritten func(*SP) bool
	// counted gives how many partitions the topic has by a leader that refused because the request says otherwise; nil
	// for requests that do not say.
	counted func(*SP) (int32, bool)
	// explain adds a text to the code; nil where the answer has no place for one.
	explain func(*SP, string)
}

// whole is the node that leads all partitions of a request; false when there is no such node. A request without
// partitions is for this node.
func (s *split[QT, QP, ST, SP]) whole(l leaders, topics []QT) (node int32, ok bool) {
	node, first := l.self, true
	for i := range topics {
		topic, parts := l.topic(s.topic(&topics[i])), *s.partitions(&topics[i])
		for j := range parts {
			leader := l.of(topic, s.number(&parts[j]))
			if first {
				node, first = leader, false
			}
			if leader != node {
				return node, false
			}
		}
	}
	return node, true
}

// clean tells whether an answer has no error at all.
func (s *split[QT, QP, ST, SP]) clean(answer []ST) bool {
	for i := range answer {
		parts := *s.answers(&answer[i])
		for j := range parts {
			if s.code(&parts[j]) != 0 {
				return false
			}
		}
	}
	return true
}

// cursor is where the next partition probably stands in an answer: nodes answer in the order of the request.
type cursor struct{ topic, part int }

// find looks for one partition in an answer, which may name topics by name or by id alone.
func (s *split[QT, QP, ST, SP]) find(answer []ST, key topicKey, number int32, c *cursor) *SP {
	for range 2 { // at the cursor, at the start of the topic behind it
		if c.topic < len(answer) && s.isAbout(&answer[c.topic], key) {
			parts := *s.answers(&answer[c.topic])
			if c.part < len(parts) && s.answerOf(&parts[c.part]) == number {
				c.part++
				return &parts[c.part-1]
			}
		}
		c.topic, c.part = c.topic+1, 0
	}
	for i := range answer {
		if !s.isAbout(&answer[i], key) {
			continue
		}
		parts := *s.answers(&answer[i])
		for j := range parts {
			if s.answerOf(&parts[j]) == number {
				*c = cursor{i, j + 1}
				return &parts[j]
			}
		}
	}
	return nil
}

func (s *split[QT, QP, ST, SP]) isAbout(t *ST, key topicKey) bool {
	got := s.answered(t)
	return got.id != ([16]byte{}) && got.id == key.id || got.name != "" && got.name == key.name
}

// envelope says where the topics stand in the messages of one key.
type envelope[QT, ST any] struct {
	asked   func(kmsg.Request) []QT
	about   func(kmsg.Request, []QT) kmsg.Request // a copy of the request about other topics
	answers func(kmsg.Response) *[]ST
	// limit bounds what the request says of how long to wait; nil for requests that do not say.
	limit func(r kmsg.Request, left time.Duration)
}
