package consumer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"millrace/consumer"
)

// A member that comes to a node whose clock is behind goes on with the numbers of the node before. A late request with
// an old one of those has no delivery get a number that the client knows from there.
func TestLateRequestTakesNoNumber(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 30)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest, AutoCommit: true})
	e.assignment(k, 1)
	poll := func(seen int64) ([]string, int64) {
		p, err := k.Poll(t.Context(), consumer.PollRequest{MaxRecords: 10, Seen: seen, SaysSeen: true})
		require.NoError(t, err)
		defer p.Free()
		return valuesOf(p), p.Delivery
	}
	_, here := poll(0)
	there := here + 1000 // the last of the other node, of which the client knows
	got, _ := poll(there - 1)
	require.Equal(t, numbers(0, 10), got, "to nobody")
	got, next := poll(there)
	require.Equal(t, numbers(0, 10), got)
	require.Equal(t, int64(0), e.committed("g", "t", 0))
	got, _ = poll(next)
	require.Equal(t, numbers(10, 20), got)
	require.Equal(t, int64(10), e.committed("g", "t", 0))
}

// What a client has committed of a delivery has come to it: it is not handed out again when a late request says that
// the delivery was lost.
func TestCommittedRecordsDoNotComeAgain(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 30)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest})
	e.assignment(k, 1)
	poll := func() []string {
		p, err := k.Poll(t.Context(), consumer.PollRequest{MaxRecords: 10, Seen: 0, SaysSeen: true})
		require.NoError(t, err)
		defer p.Free()
		return valuesOf(p)
	}
	require.Equal(t, numbers(0, 10), poll())
	at := consumer.Offset{Offset: 7}
	at.Topic = "t"
	errs, err := k.Commit(t.Context(), []consumer.Offset{at})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, errs)
	require.Equal(t, numbers(7, 17), poll())
	require.Equal(t, numbers(7, 17), poll(), "of this one nothing is committed")
}

// What a client did not get comes again; but a late note of that takes back nothing of what it was given since.
func TestLateNoteOfLossTakesNothingBack(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 30)...)
	k := e.join(e.members(), consumer.Config{Topics: []string{"t"}, Reset: consumer.Earliest})
	e.assignment(k, 1)
	poll := func() ([]string, int64) {
		p, err := k.Poll(t.Context(), consumer.PollRequest{MaxRecords: 10})
		require.NoError(t, err)
		defer p.Free()
		return valuesOf(p), p.Delivery
	}
	lost := func(delivery, offset int64) {
		k.Lost(delivery, consumer.Offset{TopicPartition: tp("t", 0), Offset: offset})
	}
	_, first := poll()
	lost(first, 0)
	got, second := poll()
	require.Equal(t, numbers(0, 10), got)
	got, third := poll()
	require.Equal(t, numbers(10, 20), got)
	lost(second, 0)
	got, _ = poll()
	require.Equal(t, numbers(20, 30), got, "the client has come back since the second delivery")
	lost(third, 10)
	got, _ = poll()
	require.Empty(t, got)
}
