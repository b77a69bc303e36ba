package client

import (
	"github.com/twmb/franz-go/pkg/kerr"
)

// maxTopicName is Kafka's bound: the name becomes a folder with the partition's number behind it.
const maxTopicName = 249

// CheckTopicName returns INVALID_TOPIC_EXCEPTION unless name is 1 to 249 of [a-zA-Z0-9._-] and not
// "." or "..".
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return Fault(kerr.InvalidTopicException, "a topic name may not be empty")
	case name == "." || name == "..":
		return Fault(kerr.InvalidTopicException, "a topic may not be named %q", name)
	case len(name) > maxTopicName:
		return Fault(kerr.InvalidTopicException, "a topic name has at most %d characters, this one has %d",
			maxTopicName, len(name))
	}
	for i := range len(name) {
		if !topicChar(name[i]) {
			return Fault(kerr.InvalidTopicException,
				"topic name %q: only letters, digits, '.', '_' and '-' are allowed", name)
		}
	}
	return nil
}

// checkNewTopicName is CheckTopicName for a topic that is to be made. The brokers make their own when they need them.
func checkNewTopicName(name string) error {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", KeysTopic:
		return newFault(kerr.InvalidTopicException, "topic "+name+" is the cluster's own: it makes it by itself when it "+
			"needs it", name, -1)
	}
	return CheckTopicName(name)
}

func topicChar(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
}
