package group

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/partition"
)

// commitFrom commits an offset of partition 0 of topic t where another one is committed, and gives what came of it and
// what was found.
func (l *lab) commitFrom(from, to int64) (*kerr.Error, int64) {
	req := commitTo("g", "t", to)
	ktag.SetCommitFrom(&req.Topics[0].Partitions[0].UnknownTags, from)
	return outcomeOf(ask[*kmsg.OffsetCommitResponse](l, "g", req).Topics[0].Partitions[0])
}

func outcomeOf(p kmsg.OffsetCommitResponseTopicPartition) (*kerr.Error, int64) {
	at, ok := ktag.ActualOffset(&p.UnknownTags)
	if !ok {
		at = -2
	}
	return kerr.TypedErrorForCode(p.ErrorCode), at
}

// commitFromIn does the same in the transaction of a producer.
func (l *lab) commitFromIn(producer, from, to int64) *kerr.Error {
	req := txnCommit("g", to)
	req.ProducerID = producer
	ktag.SetCommitFrom(&req.Topics[0].Partitions[0].UnknownTags, from)
	resp := ask[*kmsg.TxnOffsetCommitResponse](l, "g", req).Topics[0].Partitions[0]
	_, found := ktag.ActualOffset(&resp.UnknownTags)
	code := kerr.TypedErrorForCode(resp.ErrorCode)
	require.Equal(l.t, code != kerr.UnstableOffsetCommit, found)
	return code
}

// endTxn ends the transaction of a producer.
func (l *lab) endTxn(producer int64, epoch int16, commit bool) {
	mark := &partition.Marker{ProducerID: producer, ProducerEpoch: epoch, Commit: commit, Version: 2, Epoch: -1}
	require.NoError(l.t, l.nodes[0].coordinator.Marker(l.ctx, 0, mark))
}

func TestCommitFrom(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		for _, c := range []struct {
			from, to int64
			want     *kerr.Error
			found    int64
		}{
			{0, 5, kerr.InvalidUpdateVersion, -1},
			{-1, 5, nil, -1},
			{-1, 5, kerr.InvalidUpdateVersion, 5},
			{4, 6, kerr.InvalidUpdateVersion, 5},
			{5, 8, nil, 5},
			{5, 8, kerr.InvalidUpdateVersion, 8}, // also when it is the same again: another worker says the same
			{8, 3, nil, 8},
		} {
			code, found := l.commitFrom(c.from, c.to)
			require.Equal(t, c.want, code, "%+v", c)
			require.Equal(t, c.found, found, "%+v", c)
			l.again()
		}
		require.EqualValues(t, 3, l.committed("g", "t", 0))

		two := commitTo("g", "t", 4, 1)
		ktag.SetCommitFrom(&two.Topics[0].Partitions[0].UnknownTags, 9)
		ktag.SetCommitFrom(&two.Topics[0].Partitions[1].UnknownTags, -1)
		of := ask[*kmsg.OffsetCommitResponse](l, "g", two).Topics[0].Partitions
		require.Equal(t, kerr.InvalidUpdateVersion.Code, of[0].ErrorCode)
		require.Zero(t, of[1].ErrorCode)
		require.EqualValues(t, 3, l.committed("g", "t", 0))
		require.EqualValues(t, 1, l.committed("g", "t", 1))
	})
}

// Of many who come from the same offset at once, one goes on.
func TestCommitFromAtOnce(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.commit("g", "t", 5)
		var wg sync.WaitGroup
		done := make(chan *kerr.Error, 40)
		for i := range 40 {
			wg.Go(func() {
				code, _ := l.commitFrom(5, int64(6+i))
				done <- code
			})
		}
		wg.Wait()
		close(done)
		passed := 0
		for code := range done {
			if code == nil {
				passed++
				continue
			}
			require.Equal(t, kerr.InvalidUpdateVersion, code)
		}
		require.Equal(t, 1, passed)
	})
}

func TestCommitFromInTransactions(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.commit("g", "t", 5)
		require.Nil(t, l.commitFromIn(7, 5, 8))
		require.Equal(t, kerr.UnstableOffsetCommit, l.commitFromIn(9, 5, 8), "the other may commit yet")
		code, _ := l.commitFrom(5, 8)
		require.Equal(t, kerr.UnstableOffsetCommit, code)
		l.again()
		require.Equal(t, kerr.UnstableOffsetCommit, l.commitFromIn(9, 5, 8), "the log knows too")
		require.Nil(t, l.commitFromIn(7, 5, 8), "the same again")
		require.Nil(t, l.commitFromIn(7, 8, 11), "on from what the transaction itself has committed")
		require.Equal(t, kerr.InvalidUpdateVersion, l.commitFromIn(7, 5, 12))
		l.endTxn(7, 1, false)
		require.EqualValues(t, 5, l.committed("g", "t", 0))

		require.Nil(t, l.commitFromIn(9, 5, 8), "what was aborted is not in the way")
		l.endTxn(9, 1, true)
		require.EqualValues(t, 8, l.committed("g", "t", 0))
		require.Equal(t, kerr.InvalidUpdateVersion, l.commitFromIn(11, 5, 8))
		require.Nil(t, l.commitFromIn(11, 8, 9))
	})
}

// Only who has a partition, or has to give it up, commits for it, where that is asked for.
func TestCommitOfWhatIsHeld(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		join := func(member string, topics ...string) int32 {
			resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", joinRequest(member, topics...))
			require.Zero(t, resp.ErrorCode)
			return resp.MemberEpoch
		}
		epochs := map[string]int32{"a": join("a", "t")}
		commit := func(member string, number int32, held bool) *kerr.Error {
			req := txnCommit("g", 1)
			req.MemberID, req.Generation, req.ProducerID = member, epochs[member], 7+int64(len(l.txn.asked))
			req.Topics[0].Partitions[0].Partition = number
			if held {
				ktag.SetHeld(&req.UnknownTags)
			}
			code := ask[*kmsg.TxnOffsetCommitResponse](l, "g", req).Topics[0].Partitions[0].ErrorCode
			return kerr.TypedErrorForCode(code)
		}
		for number := range int32(4) {
			require.Nil(t, commit("a", number, true))
		}
		epochs["hand"] = join("hand")
		require.Nil(t, commit("hand", 3, true), "of what a member reads by hand the group does not know")
		epochs["b"] = join("b", "t")
		gives := func() (out []int32) { // what a has to give up
			l.inspect("g", func(s *shard) {
				s.groups["g"].consumer.current("a").pending.each(func(p partitionID) { out = append(out, p.partition) })
			})
			return out
		}
		time.Sleep(2 * time.Second) // an assignment is made once in a while
		synctest.Wait()
		same := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		same.Group, same.MemberID, same.MemberEpoch = "g", "a", epochs["a"]
		epochs["a"] = ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", same).MemberEpoch
		pending := gives()
		require.Len(t, pending, 2)
		for number := range int32(4) {
			require.Nil(t, commit("a", number, true), "it has them until it has given them up")
			require.Equal(t, kerr.FencedMemberEpoch, commit("b", number, true))
			require.Nil(t, commit("b", number, false))
		}
	})
}
