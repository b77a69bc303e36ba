package consumer

import (
	"errors"

	"millrace/client"
)

// Errors of members. Whatever else goes wrong is an error of package client.
var (
	// ErrUnknownMember says that there is no such member: it never was, or it left, or its lease ended.
	ErrUnknownMember = errors.New("there is no such member")
	// ErrFenced says, once, that the group went on without the member: its partitions are others' now, and what it
	// did not commit they get again. The member is gone; it may be joined anew.
	ErrFenced = errors.New("the group went on without this member")
	// ErrTaken says that the id of a new member is in use.
	ErrTaken = errors.New("the member id is in use")
	// ErrNotAssigned says that the member does not have a partition.
	ErrNotAssigned = errors.New("the partition is not assigned to this member")
	// ErrNotSubscribed says that the member has neither a subscription nor an assignment by hand.
	ErrNotSubscribed = errors.New("the member has no subscription and no assignment")
	// ErrSubscribedOtherwise says that a member is to have a subscription to topics, or one to a pattern, or an
	// assignment by hand, and not two of these.
	ErrSubscribedOtherwise = errors.New("topics, a pattern and an assignment by hand exclude one another")
	// ErrMoved says that the member lives on another node from now on: the same call finds it there.
	ErrMoved = errors.New("the member has moved to another node")
	// ErrTooMany says that this node runs as many members as it may.
	ErrTooMany = errors.New("this node runs as many members of groups as it may")
	// ErrBadSeen says that PollRequest.Seen is no number that the member gave.
	ErrBadSeen = errors.New("no such delivery")
)

// NoOffsetError says that a member has no place in a partition, and no rule that gives it one: nothing is
// committed, or the place is outside the log.
type NoOffsetError struct {
	client.TopicPartition
	Offset int64 // the place outside the log, -1: nothing is committed
	// Start and End are what there is to read, where that is Known: End is the offset after the last record.
	Start, End int64
	Known      bool
}

func (e *NoOffsetError) Error() string {
	if e.Offset < 0 {
		return "the group has no committed offset and the member no rule where to start"
	}
	return "the position is outside the log and the member has no rule where to go on"
}
