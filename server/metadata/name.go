package metadata

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxTopicName is the greatest length of a topic name.
const MaxTopicName = 249

// The topics that belong to the brokers. GroupTopic and TxnTopic are those in which the coordinators of groups and of
// transactions keep what they know.
const (
	GroupTopic        = "__consumer_offsets"
	TxnTopic          = "__transaction_state"
	ShareGroupTopic   = "__share_group_state"
	KeysTopic         = "__idempotency_keys"
	reservedTopicName = "__cluster_metadata"
)

// IsInternal reports whether a topic of that name belongs to the brokers.
func IsInternal(name string) bool {
	return name == GroupTopic || name == TxnTopic || name == ShareGroupTopic || name == KeysTopic
}

// Count says how many there are of something, as 1 broker or 2 brokers.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// ValidateTopicName checks a name by Kafka's rule: 1 to 249 of the characters a-z, A-Z, 0-9, '.',
// '_' and '-', and not "." or "..". A name that passes is safe as a folder name. The error says
// what is wrong, for a client to read; its code is INVALID_TOPIC_EXCEPTION.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("topic name is empty: give 1 to %d characters", MaxTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("topic name %q is not allowed: it would mean a folder", name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("topic name %.40q... has %d bytes: at most %d are allowed", name, len(name), MaxTopicName)
	}
	for i, r := range name {
		if !topicNameRune(r) {
			return fmt.Errorf("topic name %q has %q at byte %d: only a-z, A-Z, 0-9, '.', '_' and '-' are allowed", name, r, i)
		}
	}
	return nil
}

func topicNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// fold maps names that may not exist side by side to the same text: a metric name has no dots, so
// "a.b" and "a_b" would share one.
func fold(name string) string { return strings.ReplaceAll(name, ".", "_") }

// appendFolded is fold without memory of its own.
func appendFolded(dst []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if c == '.' {
			c = '_'
		}
		dst = append(dst, c)
	}
	return dst
}
