package group

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
	"millrace/server/metadata"
	"millrace/server/partition"
)

func TestCommitAndFetch(t *testing.T) {
	inLab(t, labOptions{partitions: 3}, func(t *testing.T, l *lab) {
		for _, g := range []string{"a", "b", "日本"} {
			l.commit(g, "t", 5, 6)
		}
		l.commit("a", "t", 7)
		require.EqualValues(t, 7, l.committed("a", "t", 0))
		require.EqualValues(t, 6, l.committed("a", "t", 1))
		require.EqualValues(t, -1, l.committed("a", "t", 2))
		require.EqualValues(t, -1, l.committed("none", "t", 0))
		l.again()
		require.EqualValues(t, 7, l.committed("a", "t", 0))
		require.EqualValues(t, 5, l.committed("日本", "t", 0))
	})
}

func TestCommitRefusals(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		id := l.machine.Image().Topic("t").ID
		for name, c := range map[string]struct {
			change func(*kmsg.OffsetCommitRequest)
			want   *kerr.Error
		}{
			"as it is": {func(*kmsg.OffsetCommitRequest) {}, nil},
			"metadata of the longest length": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(strings.Repeat("m", 4096))
			}, nil},
			"metadata too long": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(strings.Repeat("m", 4097))
			}, kerr.OffsetMetadataTooLarge},
			"no metadata": {func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = nil }, nil},
			"beyond the end of the log": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Offset = 1 << 62
			}, nil},
			"negative offset": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Offset = -1
			}, kerr.InvalidRequest},
			"negative partition": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Partition = -1
			}, kerr.UnknownTopicOrPartition},
			"unknown partition": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Partitions[0].Partition = 4
			}, kerr.UnknownTopicOrPartition},
			"unknown topic": {func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Topic = "u" }, kerr.UnknownTopicOrPartition},
			"no topic":      {func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Topic = "" }, kerr.UnknownTopicOrPartition},
			"by id": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Topic, r.Topics[0].TopicID = "", id
			}, nil},
			"by name and id": {func(r *kmsg.OffsetCommitRequest) { r.Topics[0].TopicID = id }, nil},
			"unknown id": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].Topic, r.Topics[0].TopicID = "", [16]byte{9}
			}, kerr.UnknownTopicID},
			"id of another topic": {func(r *kmsg.OffsetCommitRequest) {
				r.Topics[0].TopicID = l.machine.Image().Topic(metadata.GroupTopic).ID
			}, kerr.UnknownTopicID},
			"generation of no group": {func(r *kmsg.OffsetCommitRequest) {
				r.Group, r.Generation, r.MemberID = "fresh", 0, "m"
			}, kerr.GroupIDNotFound},
			"generation of a group without members": {func(r *kmsg.OffsetCommitRequest) {
				r.Generation, r.MemberID = 0, "m"
			}, kerr.UnknownMemberID},
		} {
			l.commit("g", "t", 1)
			req := commitTo("g", "t", 5)
			c.change(req)
			resp := ask[*kmsg.OffsetCommitResponse](l, req.Group, req)
			require.Equal(t, codeOf(c.want), resp.Topics[0].Partitions[0].ErrorCode, name)
			require.Equal(t, req.Topics[0].Topic, resp.Topics[0].Topic, name)
			require.Equal(t, req.Topics[0].TopicID, resp.Topics[0].TopicID, name)
			want := int64(1)
			if c.want == nil {
				want = req.Topics[0].Partitions[0].Offset
			}
			require.Equal(t, want, l.committed("g", "t", 0), name)
		}
	})
}

// A commit that no batch holds is refused as a whole, in Kafka's word for it.
func TestCommitTooLarge(t *testing.T) {
	inLab(t, labOptions{static: map[string]string{"offset.metadata.max.bytes": "32767"}}, func(t *testing.T, l *lab) {
		l.createTopic("wide", 100)
		req := commitTo("g", "wide", make([]int64, 100)...)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].Metadata = kmsg.StringPtr(strings.Repeat("m", 32767))
		}
		resp := ask[*kmsg.OffsetCommitResponse](l, "g", req)
		for _, p := range resp.Topics[0].Partitions {
			require.Equal(t, kerr.InvalidCommitOffsetSize.Code, p.ErrorCode)
		}
		require.EqualValues(t, -1, l.committed("g", "wide", 0))
	})
}

// Where the log takes small batches only, tombstones go in smaller ones.
func TestSmallBatches(t *testing.T) {
	inLab(t, labOptions{static: map[string]string{"message.max.bytes": "2000"}}, func(t *testing.T, l *lab) {
		for i := range 10 {
			l.commit("g", "t", int64(i), int64(i), int64(i), int64(i))
			l.createTopic(fmt.Sprint("topic-", i), 20)
			l.commit("g", fmt.Sprint("topic-", i), make([]int64, 20)...)
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		require.Zero(t, ask[*kmsg.DeleteGroupsResponse](l, "g", req).Groups[0].ErrorCode)
		l.again()
		l.inspect("g", func(s *shard) { require.Empty(t, s.groups) })
		wordy := commitTo("g", "topic-0", make([]int64, 20)...)
		for i := range wordy.Topics[0].Partitions {
			wordy.Topics[0].Partitions[i].Metadata = kmsg.StringPtr(strings.Repeat("m", 100))
		}
		large := ask[*kmsg.OffsetCommitResponse](l, "g", wordy)
		require.Equal(t, kerr.InvalidCommitOffsetSize.Code, large.Topics[0].Partitions[0].ErrorCode)
	})
}

func TestFetchByIDAndByOldRequest(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.commit("g", "t", 5, 6)
		req := kmsg.NewPtrOffsetFetchRequest()
		in := kmsg.NewOffsetFetchRequestGroup()
		in.Group = "g"
		known, unknown := kmsg.NewOffsetFetchRequestGroupTopic(), kmsg.NewOffsetFetchRequestGroupTopic()
		known.TopicID, known.Partitions = l.machine.Image().Topic("t").ID, []int32{1}
		unknown.TopicID, unknown.Partitions = [16]byte{9}, []int32{0}
		in.Topics = append(in.Topics, known, unknown)
		req.Groups = append(req.Groups, in)
		got := ask[*kmsg.OffsetFetchResponse](l, "g", req).Groups[0]
		require.EqualValues(t, 6, got.Topics[0].Partitions[0].Offset)
		require.Equal(t, known.TopicID, got.Topics[0].TopicID)
		require.Equal(t, kerr.UnknownTopicID.Code, got.Topics[1].Partitions[0].ErrorCode)

		req.Groups[0].Topics = nil
		got = ask[*kmsg.OffsetFetchResponse](l, "g", req).Groups[0]
		require.Equal(t, "t", got.Topics[0].Topic, "who asks for all is told of topics by name, as nodes tell each other")

		old := kmsg.NewPtrOffsetFetchRequest()
		old.Group = "g"
		all := ask[*kmsg.OffsetFetchResponse](l, "g", old)
		require.Len(t, all.Topics[0].Partitions, 2)
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = "t", []int32{0, 3}
		old.Topics = append(old.Topics, topic)
		some := ask[*kmsg.OffsetFetchResponse](l, "g", old)
		require.EqualValues(t, 5, some.Topics[0].Partitions[0].Offset)
		require.EqualValues(t, -1, some.Topics[0].Partitions[1].Offset)
		old.Group = ""
		require.Equal(t, kerr.InvalidGroupID.Code, ask[*kmsg.OffsetFetchResponse](l, "g", old).ErrorCode)
	})
}

// Every request refuses a group id that could not be named, and leaves nothing behind.
func TestGroupIDs(t *testing.T) {
	for id, want := range map[string]*kerr.Error{
		"g": nil, "日本": nil, "a b/c:%": nil, "e\u0301": nil, "\U0001F600": nil, strings.Repeat("g", 255): nil,
		"": kerr.InvalidGroupID, strings.Repeat("g", 256): kerr.InvalidGroupID, strings.Repeat("日", 86): kerr.InvalidGroupID,
		strings.Repeat("g", 1<<20): kerr.InvalidGroupID, "a\x00b": kerr.InvalidGroupID, "a\nb": kerr.InvalidGroupID,
		"a\x7f": kerr.InvalidGroupID, "a\u0085": kerr.InvalidGroupID, "a\xff": kerr.InvalidGroupID,
		"\xed\xa0\x80": kerr.InvalidGroupID,
	} {
		require.Equal(t, want, checkGroupID(id), "%.20q", id)
	}
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		for _, bad := range []string{"", "a\nb", strings.Repeat("g", 256)} {
			for name, code := range refusals(l, bad) {
				want := kerr.InvalidGroupID.Code
				if name == "ConsumerGroupHeartbeat" && bad == "" {
					want = kerr.InvalidRequest.Code
				}
				require.Equal(t, want, code, "%s of %.10q", name, bad)
			}
		}
		l.inspect("g", func(s *shard) { require.Empty(t, s.groups) })
	})
}

// refusals is the code that each request about a group is answered.
func refusals(l *lab, id string) map[string]int16 {
	codes := map[string]int16{}
	join, sync := kmsg.NewPtrJoinGroupRequest(), kmsg.NewPtrSyncGroupRequest()
	beat, leave := kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest()
	consumer, forget := kmsg.NewPtrConsumerGroupHeartbeatRequest(), kmsg.NewPtrOffsetDeleteRequest()
	join.Group, sync.Group, beat.Group, leave.Group, consumer.Group, forget.Group = id, id, id, id, id, id
	codes["JoinGroup"] = ask[*kmsg.JoinGroupResponse](l, "g", join).ErrorCode
	codes["SyncGroup"] = ask[*kmsg.SyncGroupResponse](l, "g", sync).ErrorCode
	codes["Heartbeat"] = ask[*kmsg.HeartbeatResponse](l, "g", beat).ErrorCode
	codes["LeaveGroup"] = ask[*kmsg.LeaveGroupResponse](l, "g", leave).ErrorCode
	codes["ConsumerGroupHeartbeat"] = ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", consumer).ErrorCode
	codes["OffsetDelete"] = ask[*kmsg.OffsetDeleteResponse](l, "g", forget).ErrorCode
	codes["OffsetCommit"] = ask[*kmsg.OffsetCommitResponse](l, "g", commitTo(id, "t", 1)).Topics[0].Partitions[0].ErrorCode
	txn := txnCommit(id, 5)
	codes["TxnOffsetCommit"] = ask[*kmsg.TxnOffsetCommitResponse](l, "g", txn).Topics[0].Partitions[0].ErrorCode
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = append(fetch.Groups, kmsg.OffsetFetchRequestGroup{Group: id, MemberEpoch: -1})
	codes["OffsetFetch"] = ask[*kmsg.OffsetFetchResponse](l, "g", fetch).Groups[0].ErrorCode
	describe, again := kmsg.NewPtrDescribeGroupsRequest(), kmsg.NewPtrConsumerGroupDescribeRequest()
	remove := kmsg.NewPtrDeleteGroupsRequest()
	describe.Groups, again.Groups, remove.Groups = []string{id}, []string{id}, []string{id}
	codes["DescribeGroups"] = ask[*kmsg.DescribeGroupsResponse](l, "g", describe).Groups[0].ErrorCode
	codes["ConsumerGroupDescribe"] = ask[*kmsg.ConsumerGroupDescribeResponse](l, "g", again).Groups[0].ErrorCode
	codes["DeleteGroups"] = ask[*kmsg.DeleteGroupsResponse](l, "g", remove).Groups[0].ErrorCode
	return codes
}

func txnCommit(group string, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.TransactionalID, req.ProducerID, req.Generation = group, "tx", 7, -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = offset
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// Where this node does not lead, loads, has no offsets topic, or stops, each request says so.
func TestNotTheCoordinator(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.commit("g", "t", 1)
		c := l.nodes[0].coordinator
		c.Resign(0)
		for name, code := range refusals(l, "g") {
			require.Equal(t, kerr.NotCoordinator.Code, code, name)
		}
		require.Zero(t, ask[*kmsg.ListGroupsResponse](l, "g", kmsg.NewPtrListGroupsRequest()).ErrorCode)
		require.Equal(t, kerr.NotCoordinator, c.Marker(l.ctx, 0, &partition.Marker{}))

		l.again()
		l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: metadata.GroupTopic}}})
		for name, code := range refusals(l, "g") {
			require.Equal(t, kerr.CoordinatorNotAvailable.Code, code, name)
		}
		_, err := c.Request(l.ctx, kmsg.NewPtrFetchRequest())
		require.Error(t, err)
	})
}

func TestClosedCoordinator(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		require.NoError(t, l.nodes[0].coordinator.Close())
		for name, code := range refusals(l, "g") {
			require.Equal(t, kerr.CoordinatorNotAvailable.Code, code, name)
		}
	})
}

// A transaction that ends between the question to its coordinator and the append has nothing appended to it.
func TestGuardOfTransactions(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		mark := &partition.Marker{ProducerID: 7, ProducerEpoch: 1, Commit: true, Version: 2, Epoch: -1}
		first := ask[*kmsg.TxnOffsetCommitResponse](l, "g", txnCommit("g", 5))
		require.Zero(t, first.Topics[0].Partitions[0].ErrorCode)
		require.Len(t, l.txn.asked, 1)
		asked := l.txn.asked[0].Transactions[0]
		require.Equal(t, "tx", asked.TransactionalID)
		require.False(t, asked.VerifyOnly)
		require.Equal(t, metadata.GroupTopic, asked.Topics[0].Topic)
		require.Equal(t, []int32{0}, asked.Topics[0].Partitions)

		second := ask[*kmsg.TxnOffsetCommitResponse](l, "g", txnCommit("g", 6))
		require.Zero(t, second.Topics[0].Partitions[0].ErrorCode)
		require.Len(t, l.txn.asked, 1, "the transaction has the partition already")
		require.NoError(t, l.nodes[0].coordinator.Marker(l.ctx, 0, mark))
		require.EqualValues(t, 6, l.committed("g", "t", 0))

		req := txnCommit("g", 9)
		req.ProducerEpoch = 1
		l.txn.before = func() {
			late := &partition.Marker{ProducerID: 7, ProducerEpoch: 1, CoordinatorEpoch: 1, Version: 1, Epoch: -1}
			require.NoError(t, l.nodes[0].coordinator.Marker(l.ctx, 0, late))
		}
		resp := ask[*kmsg.TxnOffsetCommitResponse](l, "g", req)
		require.Equal(t, kerr.InvalidTxnState.Code, resp.Topics[0].Partitions[0].ErrorCode)
		l.inspect("g", func(s *shard) { require.Empty(t, s.pending) })
		require.EqualValues(t, 6, l.committed("g", "t", 0))
	})
}

// What the coordinator of the transaction says is passed on, but for what is only said of itself, or would be read as
// said of the group's coordinator or of the topics whose offsets are committed.
func TestCoordinatorOfTransactionsRefuses(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		for said, want := range map[*kerr.Error]*kerr.Error{
			kerr.ConcurrentTransactions:    kerr.ConcurrentTransactions,
			kerr.ProducerFenced:            kerr.ProducerFenced,
			kerr.InvalidProducerIDMapping:  kerr.InvalidProducerIDMapping,
			kerr.NotCoordinator:            kerr.CoordinatorNotAvailable,
			kerr.CoordinatorLoadInProgress: kerr.CoordinatorNotAvailable,
			kerr.CoordinatorNotAvailable:   kerr.CoordinatorNotAvailable,
			kerr.UnknownTopicOrPartition:   kerr.CoordinatorNotAvailable,
			kerr.NetworkException:          kerr.CoordinatorNotAvailable,
		} {
			l.txn.answer(said)
			resp := ask[*kmsg.TxnOffsetCommitResponse](l, "g", txnCommit("g", 5))
			require.Equal(t, want.Code, resp.Topics[0].Partitions[0].ErrorCode, said.Message)
		}
		l.inspect("g", func(s *shard) { require.Empty(t, s.groups) })
	})
}

// Very many offsets are removed in batches that the log takes, while the loop does other things.
func TestManyOffsets(t *testing.T) {
	const parts = 1500
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		many := make([]int64, parts)
		for i, topic := range []string{"a", "b", "c"} {
			l.createTopic(topic, parts)
			l.commit("g", topic, many...)
			l.commit("h", topic, many[:100+i]...)
		}
		l.deleteTopic("b")
		synctest.Wait()
		l.inspect("g", func(s *shard) {
			require.Len(t, s.groups["g"].offsets, 2)
			require.Equal(t, 2*parts, s.groups["g"].count)
			require.Equal(t, 202, s.groups["h"].count)
		})
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		require.Zero(t, ask[*kmsg.DeleteGroupsResponse](l, "g", req).Groups[0].ErrorCode)
		l.again()
		l.inspect("g", func(s *shard) {
			require.Len(t, s.groups, 1)
			require.EqualValues(t, 202, s.offsets)
		})
	})
}

// What is committed while a sweep is under way stays.
func TestSweepSparesNewCommits(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.createTopic("a", 3000)
		l.commit("g", "a", make([]int64, 3000)...)
		l.inspect("g", func(s *shard) {
			w := &sweep{shard: s, groups: s.all(), done: func(int) {},
				doomed: func(_ *group, _ string, _ int32, o *committed) bool { return o.offset == 0 }}
			w.begin()
			require.NotEmpty(t, w.found, "there is more to do")
			last := w.found[len(w.found)-1].partition
			o := &committed{offset: 77, commitTimestamp: s.millis(), expireTimestamp: -1}
			require.NoError(t, s.run.Append(coordinator.KV{Key: offsetKey("g", "a", last), Value: encodeOffset(o)}))
		})
		synctest.Wait()
		l.inspect("g", func(s *shard) {
			require.Equal(t, 1, s.groups["g"].count)
			for _, o := range s.groups["g"].offsets["a"] {
				require.EqualValues(t, 77, o.offset)
			}
		})
	})
}

// Offsets outlive a topic that went while their partition was being read, until the next look.
func TestTopicDeletedUnnoticed(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.createTopic("u", 1)
		l.commit("g", "u", 1)
		l.commit("g", "t", 2)
		l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "u"}}})
		require.EqualValues(t, 1, l.committed("g", "u", 0))
		time.Sleep(11 * time.Minute)
		require.EqualValues(t, -1, l.committed("g", "u", 0))
		require.EqualValues(t, 2, l.committed("g", "t", 0))
	})
}

func TestBatchedGroups(t *testing.T) {
	inLab(t, labOptions{partitions: 5}, func(t *testing.T, l *lab) {
		req := kmsg.NewPtrOffsetFetchRequest()
		for i := range 40 {
			id := "g" + strings.Repeat("x", i)
			l.commit(id, "t", int64(i))
			in := kmsg.NewOffsetFetchRequestGroup()
			in.Group = id
			req.Groups = append(req.Groups, in)
		}
		bad := kmsg.NewOffsetFetchRequestGroup()
		bad.Group = "\x00"
		req.Groups = append(req.Groups, bad)
		resp := ask[*kmsg.OffsetFetchResponse](l, "any", req)
		for i := range 40 {
			require.Equal(t, req.Groups[i].Group, resp.Groups[i].Group)
			require.EqualValues(t, i, resp.Groups[i].Topics[0].Partitions[0].Offset)
		}
		require.Equal(t, kerr.InvalidGroupID.Code, resp.Groups[40].ErrorCode)
		require.Len(t, ask[*kmsg.ListGroupsResponse](l, "any", kmsg.NewPtrListGroupsRequest()).Groups, 40)

		ctx, cancel := context.WithCancel(l.ctx)
		cancel()
		_, err := l.of("any").Request(ctx, req)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestMetrics(t *testing.T) {
	inLab(t, labOptions{partitions: 2}, func(t *testing.T, l *lab) {
		l.commit("a", "t", 1, 2)
		l.commit("b", "t", 3)
		families, err := l.nodes[0].metrics.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				got[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		require.Equal(t, map[string]float64{
			"millrace_groups": 2, "millrace_group_offsets": 3, "millrace_group_commits_total": 3,
			"millrace_group_offsets_expired_total": 0, "millrace_group_load_seconds": 2,
		}, got)
	})
}

// What is committed for a topic that is made again while a sweep finds the offsets of the one before stays.
func TestSweepSparesTheNextTopic(t *testing.T) {
	for name, begin := range map[string]func(*shard){
		"of a topic": func(s *shard) { s.removeTopics(map[string]bool{"a": true}) },
		"of all":     (*shard).expire,
	} {
		t.Run(name, func(t *testing.T) { sweepSparesTheNextTopic(t, begin) })
	}
}

func sweepSparesTheNextTopic(t *testing.T, begin func(*shard)) {
	const parts = 2 * maxTombstones
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.createTopic("a", parts)
		groups := []string{"g", "h"}
		for _, id := range groups {
			l.commit(id, "a", make([]int64, parts)...)
		}
		l.inspect("g", func(s *shard) {
			l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "a"}}})
			begin(s) // with one of the groups
			l.createTopic("a", 1)
			for _, id := range groups {
				o := &committed{offset: 77, commitTimestamp: s.millis(), expireTimestamp: -1}
				require.NoError(t, s.run.Append(coordinator.KV{Key: offsetKey(id, "a", 0), Value: encodeOffset(o)}))
				s.groups[id].offset("a", 0).topicID = s.image().Topic("a").ID
			}
		})
		synctest.Wait()
		for _, id := range groups {
			require.EqualValues(t, 77, l.committed(id, "a", 0), id)
		}
	})
}
