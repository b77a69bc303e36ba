package route

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/record"
)

// The splits of all keys that leaders serve: where topics and partitions stand in their messages.
// Only Produce and Fetch name topics by id.

type produceParts = split[kmsg.ProduceRequestTopic, kmsg.ProduceRequestTopicPartition,
	kmsg.ProduceResponseTopic, kmsg.ProduceResponseTopicPartition]

func produceSplit() produceParts {
	return produceParts{
		topic:      func(t *kmsg.ProduceRequestTopic) topicKey { return topicKey{t.Topic, t.TopicID} },
		partitions: func(t *kmsg.ProduceRequestTopic) *[]kmsg.ProduceRequestTopicPartition { return &t.Partitions },
		number:     func(p *kmsg.ProduceRequestTopicPartition) int32 { return p.Partition },
		answered:   func(t *kmsg.ProduceResponseTopic) topicKey { return topicKey{t.Topic, t.TopicID} },
		answers: func(t *kmsg.ProduceResponseTopic) *[]kmsg.ProduceResponseTopicPartition {
			return &t.Partitions
		},
		answerOf:   func(p *kmsg.ProduceResponseTopicPartition) int32 { return p.Partition },
		code:       func(p *kmsg.ProduceResponseTopicPartition) int16 { return p.ErrorCode },
		repeatable: func(p *kmsg.ProduceRequestTopicPartition) bool { return sequenced(p.Records) },
		notWritten: func(p *kmsg.ProduceResponseTopicPartition) bool { return ktag.NotWritten(&p.UnknownTags) },
		explain:    func(p *kmsg.ProduceResponseTopicPartition, text string) { p.ErrorMessage = &text },
		counted: func(p *kmsg.ProduceResponseTopicPartition) (int32, bool) {
			return ktag.PartitionCount(&p.UnknownTags)
		},
		newTopic: func(k topicKey) kmsg.ProduceResponseTopic {
			return kmsg.ProduceResponseTopic{Topic: k.name, TopicID: k.id}
		},
		unanswered: func(number int32, code int16) kmsg.ProduceResponseTopicPartition {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			p.BaseOffset, p.LogAppendTime = -1, -1
			return p
		},
	}
}

// sequenced says that all batches have a producer id and a sequence: what of them is stored already a second request
// does not store again.
func sequenced(records []byte) bool {
	for rest := records; len(rest) > 0; {
		b, behind, err := record.Next(rest)
		if err != nil || b.Magic() != 2 || b.ProducerID() < 0 || b.BaseSequence() < 0 {
			return false
		}
		rest = behind
	}
	return len(records) > 0
}

type listOffsetsParts = split[kmsg.ListOffsetsRequestTopic, kmsg.ListOffsetsRequestTopicPartition,
	kmsg.ListOffsetsResponseTopic, kmsg.ListOffsetsResponseTopicPartition]

func listOffsetsSplit() listOffsetsParts {
	return listOffsetsParts{
		topic: func(t *kmsg.ListOffsetsRequestTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *kmsg.ListOffsetsRequestTopic) *[]kmsg.ListOffsetsRequestTopicPartition {
			return &t.Partitions
		},
		number:   func(p *kmsg.ListOffsetsRequestTopicPartition) int32 { return p.Partition },
		claims:   func(p *kmsg.ListOffsetsRequestTopicPartition) int32 { return p.CurrentLeaderEpoch },
		answered: func(t *kmsg.ListOffsetsResponseTopic) topicKey { return topicKey{name: t.Topic} },
		answers: func(t *kmsg.ListOffsetsResponseTopic) *[]kmsg.ListOffsetsResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.ListOffsetsResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.ListOffsetsResponseTopicPartition) int16 { return p.ErrorCode },
		newTopic: func(k topicKey) kmsg.ListOffsetsResponseTopic {
			return kmsg.ListOffsetsResponseTopic{Topic: k.name}
		},
		unanswered: func(number int32, code int16) kmsg.ListOffsetsResponseTopicPartition {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			p.Offset, p.Timestamp, p.LeaderEpoch = -1, -1, -1
			return p
		},
	}
}

type deleteRecordsParts = split[kmsg.DeleteRecordsRequestTopic, kmsg.DeleteRecordsRequestTopicPartition,
	kmsg.DeleteRecordsResponseTopic, kmsg.DeleteRecordsResponseTopicPartition]

func deleteRecordsSplit() deleteRecordsParts {
	return deleteRecordsParts{
		topic: func(t *kmsg.DeleteRecordsRequestTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *kmsg.DeleteRecordsRequestTopic) *[]kmsg.DeleteRecordsRequestTopicPartition {
			return &t.Partitions
		},
		number:   func(p *kmsg.DeleteRecordsRequestTopicPartition) int32 { return p.Partition },
		answered: func(t *kmsg.DeleteRecordsResponseTopic) topicKey { return topicKey{name: t.Topic} },
		answers: func(t *kmsg.DeleteRecordsResponseTopic) *[]kmsg.DeleteRecordsResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.DeleteRecordsResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.DeleteRecordsResponseTopicPartition) int16 { return p.ErrorCode },
		newTopic: func(k topicKey) kmsg.DeleteRecordsResponseTopic {
			return kmsg.DeleteRecordsResponseTopic{Topic: k.name}
		},
		unanswered: func(number int32, code int16) kmsg.DeleteRecordsResponseTopicPartition {
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			p.LowWatermark = -1
			return p
		},
	}
}

type offsetForLeaderEpochParts = split[
	kmsg.OffsetForLeaderEpochRequestTopic, kmsg.OffsetForLeaderEpochRequestTopicPartition,
	kmsg.OffsetForLeaderEpochResponseTopic, kmsg.OffsetForLeaderEpochResponseTopicPartition]

func offsetForLeaderEpochSplit() offsetForLeaderEpochParts {
	return offsetForLeaderEpochParts{
		topic: func(t *kmsg.OffsetForLeaderEpochRequestTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *kmsg.OffsetForLeaderEpochRequestTopic) *[]kmsg.OffsetForLeaderEpochRequestTopicPartition {
			return &t.Partitions
		},
		number:   func(p *kmsg.OffsetForLeaderEpochRequestTopicPartition) int32 { return p.Partition },
		claims:   func(p *kmsg.OffsetForLeaderEpochRequestTopicPartition) int32 { return p.CurrentLeaderEpoch },
		answered: func(t *kmsg.OffsetForLeaderEpochResponseTopic) topicKey { return topicKey{name: t.Topic} },
		answers: func(t *kmsg.OffsetForLeaderEpochResponseTopic) *[]kmsg.OffsetForLeaderEpochResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) int16 { return p.ErrorCode },
		newTopic: func(k topicKey) kmsg.OffsetForLeaderEpochResponseTopic {
			return kmsg.OffsetForLeaderEpochResponseTopic{Topic: k.name}
		},
		unanswered: func(number int32, code int16) kmsg.OffsetForLeaderEpochResponseTopicPartition {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			p.LeaderEpoch, p.EndOffset = -1, -1
			return p
		},
	}
}

type describeProducersParts = split[kmsg.DescribeProducersRequestTopic, int32,
	kmsg.DescribeProducersResponseTopic, kmsg.DescribeProducersResponseTopicPartition]

func describeProducersSplit() describeProducersParts {
	return describeProducersParts{
		topic:      func(t *kmsg.DescribeProducersRequestTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *kmsg.DescribeProducersRequestTopic) *[]int32 { return &t.Partitions },
		number:     func(p *int32) int32 { return *p },
		answered:   func(t *kmsg.DescribeProducersResponseTopic) topicKey { return topicKey{name: t.Topic} },
		answers: func(t *kmsg.DescribeProducersResponseTopic) *[]kmsg.DescribeProducersResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.DescribeProducersResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.DescribeProducersResponseTopicPartition) int16 { return p.ErrorCode },
		counted: func(p *kmsg.DescribeProducersResponseTopicPartition) (int32, bool) {
			return ktag.PartitionCount(&p.UnknownTags)
		},
		newTopic: func(k topicKey) kmsg.DescribeProducersResponseTopic {
			return kmsg.DescribeProducersResponseTopic{Topic: k.name}
		},
		unanswered: func(number int32, code int16) kmsg.DescribeProducersResponseTopicPartition {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			return p
		},
	}
}

type fetchParts = split[kmsg.FetchRequestTopic, kmsg.FetchRequestTopicPartition,
	kmsg.FetchResponseTopic, kmsg.FetchResponseTopicPartition]

func fetchSplit() fetchParts {
	return fetchParts{
		topic:      func(t *kmsg.FetchRequestTopic) topicKey { return topicKey{t.Topic, t.TopicID} },
		partitions: func(t *kmsg.FetchRequestTopic) *[]kmsg.FetchRequestTopicPartition { return &t.Partitions },
		number:     func(p *kmsg.FetchRequestTopicPartition) int32 { return p.Partition },
		claims:     func(p *kmsg.FetchRequestTopicPartition) int32 { return p.CurrentLeaderEpoch },
		answered:   func(t *kmsg.FetchResponseTopic) topicKey { return topicKey{t.Topic, t.TopicID} },
		answers: func(t *kmsg.FetchResponseTopic) *[]kmsg.FetchResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.FetchResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.FetchResponseTopicPartition) int16 { return p.ErrorCode },
		newTopic: func(k topicKey) kmsg.FetchResponseTopic {
			return kmsg.FetchResponseTopic{Topic: k.name, TopicID: k.id}
		},
		unanswered: func(number int32, code int16) kmsg.FetchResponseTopicPartition {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = number, code
			p.HighWatermark = -1
			return p
		},
	}
}

type describeQuorumParts = split[kmsg.DescribeQuorumRequestTopic, kmsg.DescribeQuorumRequestTopicPartition,
	kmsg.DescribeQuorumResponseTopic, kmsg.DescribeQuorumResponseTopicPartition]

func describeQuorumSplit() describeQuorumParts {
	return describeQuorumParts{
		topic: func(t *kmsg.DescribeQuorumRequestTopic) topicKey { return topicKey{name: t.Topic} },
		partitions: func(t *kmsg.DescribeQuorumRequestTopic) *[]kmsg.DescribeQuorumRequestTopicPartition {
			return &t.Partitions
		},
		number:   func(p *kmsg.DescribeQuorumRequestTopicPartition) int32 { return p.Partition },
		answered: func(t *kmsg.DescribeQuorumResponseTopic) topicKey { return topicKey{name: t.Topic} },
		answers: func(t *kmsg.DescribeQuorumResponseTopic) *[]kmsg.DescribeQuorumResponseTopicPartition {
			return &t.Partitions
		},
		answerOf: func(p *kmsg.DescribeQuorumResponseTopicPartition) int32 { return p.Partition },
		code:     func(p *kmsg.DescribeQuorumResponseTopicPartition) int16 { return p.ErrorCode },
		newTopic: func(k topicKey) kmsg.DescribeQuorumResponseTopic {
			return kmsg.DescribeQuorumResponseTopic{Topic: k.name}
		},
		unanswered: func(number int32, code int16) kmsg.DescribeQuorumResponseTopicPartition {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition, p.ErrorCode, p.LeaderID, p.LeaderEpoch, p.HighWatermark = number, code, -1, -1, -1
			return p
		},
	}
}
