package broker

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (key 35).
//
// A node has one data directory. The answer gives its size on disk and the bytes of each partition
// in it, of all topics or of those the request names; what the request names and this node does not
// have is left out.

func (b *Broker) handleDescribeLogDirs(v *view, req *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = req.Version
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = b.cfg.LogDir
	dir.TotalBytes, dir.UsableBytes = -1, -1
	if b.cfg.Space != nil {
		dir.TotalBytes, dir.UsableBytes = b.cfg.Space()
	}
	v.all(func(h *hosted) {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = h.topic.Name
		for number, p := range h.parts {
			if !asked(req, h.topic.Name, int32(number)) {
				continue
			}
			if out, ok := describePart(p, int32(number)); ok {
				t.Partitions = append(t.Partitions, out)
			} else if p.err != nil {
				dir.ErrorCode = kerr.KafkaStorageError.Code
			}
		}
		if len(t.Partitions) > 0 {
			dir.Topics = append(dir.Topics, t)
		}
	})
	slices.SortFunc(dir.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int {
		return cmp.Compare(a.Topic, b.Topic)
	})
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// describePart is false for a partition that has no usable log here.
func describePart(p part, number int32) (kmsg.DescribeLogDirsResponseDirTopicPartition, bool) {
	out := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	if p.replica == nil {
		return out, false
	}
	size, err := p.replica.Size()
	if err != nil {
		size = -1
	}
	out.Partition, out.Size = number, size
	return out, true
}

// asked tells whether the request is about that partition: nil topics are all of them.
func asked(req *kmsg.DescribeLogDirsRequest, topic string, number int32) bool {
	if req.Topics == nil {
		return true
	}
	for i := range req.Topics {
		if req.Topics[i].Topic == topic && slices.Contains(req.Topics[i].Partitions, number) {
			return true
		}
	}
	return false
}
