package group

// topicPartition names a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// committed is an offset that a group committed.
type committed struct {
	offset      int64
	leaderEpoch int32 // -1: not given
	metadata    string
	// commitTimestamp is when it was committed; expireTimestamp when it expires, -1 for by the rules.
	commitTimestamp int64
	expireTimestamp int64
	// recordOffset is where the record of it lies in the log: of two commits the one with the higher counts.
	recordOffset int64
}
