package peer

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// span is the versions of one key that nodes understand of each other. A node sends the newest, or an older one
// where that carries more.
type span struct{ oldest, newest int16 }

// byName is the last version of Produce and Fetch that names topics by name. Newer ones name them by id alone, which
// also tells a topic from one that was deleted and made again; so they are used for all topics whose id is known.
const byName = 12

// versions is the one table of what nodes send each other. The numbers are part of the protocol between nodes: a newer
// version of the library changes none of them. All versions here are flexible ones but one, so that
// tags survive.
func versions(key kmsg.Key) (s span, ok bool) {
	switch key {
	case kmsg.Produce:
		return span{byName, 13}, true
	case kmsg.Fetch: // 12 and up have LastFetchedEpoch and DivergingEpoch, 15 ReplicaState, 18 HighWatermark
		return span{byName, 18}, true
	case kmsg.ListOffsets:
		return span{11, 11}, true
	case kmsg.Metadata:
		return span{13, 13}, true
	case kmsg.CreateTopics:
		return span{7, 7}, true
	case kmsg.DeleteTopics:
		return span{6, 6}, true
	case kmsg.DeleteRecords:
		return span{2, 2}, true
	case kmsg.InitProducerID:
		return span{5, 5}, true
	case kmsg.OffsetForLeaderEpoch:
		return span{4, 4}, true
	case kmsg.DescribeConfigs:
		return span{4, 4}, true
	case kmsg.DescribeLogDirs:
		return span{5, 5}, true
	case kmsg.CreatePartitions, kmsg.AlterPartition:
		return span{3, 3}, true
	case kmsg.ElectLeaders, kmsg.DescribeQuorum, kmsg.BrokerHeartbeat, kmsg.DescribeCluster:
		return span{2, 2}, true
	case kmsg.IncrementalAlterConfigs, kmsg.AlterPartitionAssignments:
		return span{1, 1}, true
	case kmsg.BrokerRegistration:
		return span{4, 4}, true
	case kmsg.DescribeProducers, kmsg.ListPartitionReassignments, kmsg.UnregisterBroker, kmsg.AllocateProducerIDs:
		return span{0, 0}, true
	}
	return coordinatorVersions(key)
}

// coordinatorVersions are those of groups and transactions. OffsetDelete has no flexible version: it has no room for
// tags.
func coordinatorVersions(key kmsg.Key) (s span, ok bool) {
	switch key {
	case kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.JoinGroup: // 10 of the first two names topics by id alone
		return span{9, 9}, true
	case kmsg.FindCoordinator, kmsg.DescribeGroups:
		return span{6, 6}, true
	case kmsg.SyncGroup, kmsg.LeaveGroup, kmsg.ListGroups, kmsg.TxnOffsetCommit, kmsg.AddPartitionsToTxn, kmsg.EndTxn:
		return span{5, 5}, true
	case kmsg.Heartbeat, kmsg.AddOffsetsToTxn:
		return span{4, 4}, true
	case kmsg.DeleteGroups:
		return span{3, 3}, true
	case kmsg.WriteTxnMarkers, kmsg.ListTransactions:
		return span{2, 2}, true
	case kmsg.ConsumerGroupHeartbeat, kmsg.ConsumerGroupDescribe:
		return span{1, 1}, true
	case kmsg.OffsetDelete, kmsg.DescribeTransactions:
		return span{0, 0}, true
	}
	return span{}, false
}

// Version is the version in which a request travels between nodes; ok is false for a key that does not travel.
func Version(r kmsg.Request) (version int16, ok bool) {
	s, ok := versions(kmsg.Key(r.Key()))
	if !ok || s.oldest == s.newest {
		return s.newest, ok
	}
	named := false
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		for i := range r.Topics {
			named = named || r.Topics[i].TopicID == [16]byte{}
		}
	case *kmsg.FetchRequest:
		for i := range r.Topics {
			named = named || r.Topics[i].TopicID == [16]byte{}
		}
	}
	if named {
		return byName, true
	}
	return s.newest, true
}

// AppendRequest encodes a request behind dst in the version that Version says, which it also sets.
func AppendRequest(dst []byte, r kmsg.Request) ([]byte, error) {
	version, ok := Version(r)
	if !ok {
		return dst, fmt.Errorf("%s (key %d) does not travel between nodes", kmsg.NameForKey(r.Key()), r.Key())
	}
	r.SetVersion(version)
	return r.AppendTo(dst), nil
}

// ReadRequest decodes a request. Its bytes, such as record batches, are those of body.
func ReadRequest(key, version int16, body []byte) (kmsg.Request, error) {
	s, ok := versions(kmsg.Key(key))
	if !ok {
		return nil, fmt.Errorf("key %d does not travel between nodes", key)
	}
	if version < s.oldest || version > s.newest {
		return nil, fmt.Errorf("version %d of %s: this node understands %d to %d; the nodes run releases that are too far "+
			"apart", version, kmsg.NameForKey(key), s.oldest, s.newest)
	}
	r := kmsg.RequestForKey(key)
	r.SetVersion(version)
	if err := r.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("version %d of %s does not decode: %w", version, kmsg.NameForKey(key), err)
	}
	return r, nil
}

// ReadResponse decodes the answer to r, in the version of r. Topics that the answer names by id alone get the name
// that r gives them. The bytes of record batches are those of body.
func ReadResponse(r kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := r.ResponseKind()
	resp.SetVersion(r.GetVersion())
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("the answer to %s does not decode: %w", kmsg.NameForKey(r.Key()), err)
	}
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		topics := resp.(*kmsg.ProduceResponse).Topics
		for i := range topics {
			name(&topics[i].Topic, topics[i].TopicID, i, r.Topics,
				func(t *kmsg.ProduceRequestTopic) (string, [16]byte) { return t.Topic, t.TopicID })
		}
	case *kmsg.FetchRequest:
		topics := resp.(*kmsg.FetchResponse).Topics
		for i := range topics {
			name(&topics[i].Topic, topics[i].TopicID, i, r.Topics,
				func(t *kmsg.FetchRequestTopic) (string, [16]byte) { return t.Topic, t.TopicID })
		}
	}
	return resp, nil
}

// name gives the answer's topic i, which has only an id, the name that the request gives it. Mostly both stand at the
// same place.
func name[T any](to *string, id [16]byte, i int, asked []T, of func(*T) (string, [16]byte)) {
	for j := range asked {
		known, theirs := of(&asked[(i+j)%len(asked)])
		if *to != "" {
			return
		}
		if theirs == id {
			*to = known
		}
	}
}

// requestSize is about how many bytes a request takes encoded.
func requestSize(r kmsg.Request) int {
	size := 256
	switch r := r.(type) {
	case *kmsg.ProduceRequest:
		for i := range r.Topics {
			size += 64 + len(r.Topics[i].Topic)
			for j := range r.Topics[i].Partitions {
				size += 64 + len(r.Topics[i].Partitions[j].Records)
			}
		}
	case *kmsg.FetchRequest:
		for i := range r.Topics {
			size += 64 + len(r.Topics[i].Topic) + 64*len(r.Topics[i].Partitions)
		}
	}
	return size
}

// responseSize is about how many bytes a response takes encoded.
func responseSize(r kmsg.Response) int {
	size := 256
	if r, ok := r.(*kmsg.FetchResponse); ok {
		for i := range r.Topics {
			size += 64 + len(r.Topics[i].Topic)
			for j := range r.Topics[i].Partitions {
				p := &r.Topics[i].Partitions[j]
				size += 96 + len(p.RecordBatches) + 24*len(p.AbortedTransactions)
			}
		}
	}
	return size
}
