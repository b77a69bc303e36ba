package txn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

var (
	t0 = topicPartition{"t", 0}
	t1 = topicPartition{"t", 1}
	u0 = topicPartition{"u", 0}

	none = map[string]bool{} // nothing is open
)

func TestCommitAndAbort(t *testing.T) {
	inLab(t, labOptions{nodes: 3, partitions: 4}, func(t *testing.T, l *lab) {
		s := l.started("id")
		require.Equal(t, "id 1000/0", s.String())
		require.Equal(t, "Empty 1000/0", l.state("id"))
		l.produced(s, t0, 0, "a")
		l.produced(s, t0, 1, "b")
		l.produced(s, u0, 0, "c")
		require.Equal(t, "Ongoing 1000/0", l.state("id"))
		s2, e := l.end(s, true)
		require.Nil(t, e)
		require.Equal(t, "id 1000/1", s2.String())
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, "CompleteCommit 1000/1", l.state("id"))
		l.produced(s2, t1, 0, "d")
		l.produced(s2, u0, 0, "e")
		s3, e := l.end(s2, false)
		require.Nil(t, e)
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, "CompleteAbort 1000/2", l.state("id"))
		require.Equal(t, contents{committed: []string{"a", "b"}, open: none}, l.read(t0))
		require.Equal(t, contents{aborted: []string{"d"}, open: none}, l.read(t1))
		require.Equal(t, contents{committed: []string{"c"}, aborted: []string{"e"}, open: none}, l.read(u0))
		require.Equal(t, "id 1000/2", s3.String())
	})
}

// A batch, or a request to end, of a transaction that has ended does nothing to the next one.
func TestWhatComesLate(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		guard, open, err := l.leaders[t0].TxnGuard(s.producerID, s.epoch)
		require.NoError(t, err)
		require.False(t, open)
		l.added(s, t0, u0) // and the batch itself is late
		s2 := l.ended(s, true)
		_ = guard
		require.Equal(t, kerr.InvalidProducerEpoch, l.produce(s, t0, 0, "late"), "the marker has fenced it")
		require.Equal(t, kerr.ProducerFenced, l.produce(s, t1, 0, "late"), "where no marker came the coordinator does")
		l.produced(s2, t0, 0, "a")
		_, e := l.end(s, false)
		require.Equal(t, kerr.ProducerFenced, e, "a delayed request to abort")
		_, e = l.end(s, true)
		require.Equal(t, kerr.ProducerFenced, e, "a delayed request to commit")
		require.Equal(t, "Ongoing 1000/1", l.state("id"))
		l.ended(s2, true)
		require.Equal(t, []string{"a"}, l.read(t0).committed)
		require.Empty(t, l.read(t0).open)
		require.Empty(t, l.read(t1).open)
	})
}

// A new process takes the id over: what the old one has open is aborted, and it can do nothing any more.
func TestZombie(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		old := l.started("id")
		l.produced(old, t0, 0, "a")
		s, e := l.init("id")
		require.Nil(t, e, "it waits until the abort is done")
		require.Equal(t, "id 1000/2", s.String(), "one epoch for the fence, one for the new process")
		require.Equal(t, kerr.InvalidProducerEpoch, l.produce(old, t0, 1, "b"))
		require.Equal(t, kerr.ProducerFenced, l.produce(old, t1, 0, "b"))
		_, e = l.end(old, true)
		require.Equal(t, kerr.ProducerFenced, e)
		_, e = l.bumpOf(old)
		require.Equal(t, kerr.ProducerFenced, e)
		l.produced(s, t0, 0, "c")
		l.ended(s, true)
		require.Equal(t, contents{committed: []string{"c"}, aborted: []string{"a"}, open: none}, l.read(t0))
	})
}

// However often a new process asks while the transaction of the old one is being aborted, the epoch is bumped once
// for that.
func TestFenceBumpsOnce(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.added(s, t0)
		release := l.blockMarkers()
		for range 5 {
			_, e := l.init("id")
			require.Equal(t, kerr.ConcurrentTransactions, e)
		}
		require.Equal(t, "PrepareAbort 1000/1", l.state("id"))
		release()
		require.Equal(t, "id 1000/2", l.started("id").String())
	})
}

// A producer that names its epoch is answered the same again, also by the next leader.
func TestBumpIsRepeatable(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		for range 2 {
			for range 2 {
				s2, e := l.bumpOf(s)
				require.Nil(t, e)
				require.Equal(t, "id 1000/1", s2.String())
			}
			l.again()
		}
		s3 := l.started("id") // another process
		_, e := l.bumpOf(s)
		require.Equal(t, kerr.ProducerFenced, e)
		_, e = l.bumpOf(session{"id", 1000, 1})
		require.Equal(t, kerr.ProducerFenced, e, "the one before cannot pass as a retry")
		// In an open transaction: it is aborted, and who has asked goes on behind it.
		l.added(s3, t0)
		s4, e := l.bumpOf(s3)
		require.Nil(t, e)
		require.Equal(t, "id 1000/3", s4.String())
	})
}

func TestWhatIsWrongWithARequest(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		for _, id := range []string{"", strings.Repeat("x", 256), "a\x00b", "tab\t", "\xff\xfe", "line\n"} {
			_, e := l.init(id)
			require.Equal(t, kerr.InvalidRequest, e, "%q", id)
			_, e = l.end(session{id, 1, 0}, true)
			require.Equal(t, kerr.InvalidRequest, e, "%q", id)
			require.Equal(t, []int16{kerr.InvalidRequest.Code}, l.add(session{id, 1, 0}, t0), "%q", id)
			require.Equal(t, kerr.InvalidRequest.Code, l.describe(id).ErrorCode)
		}
		for _, id := range []string{"a", strings.Repeat("x", 255), "日本 \u202e\u0301", "🙈"} {
			s, e := l.init(id)
			require.Nil(t, e, "%q", id)
			require.Equal(t, id, l.describe(s.id).TransactionalID)
		}
		for _, timeout := range []int32{0, -1, 900_001} {
			req := initRequest("id")
			req.TransactionTimeoutMillis = timeout
			_, e := l.initWith(req)
			require.Equal(t, kerr.InvalidTransactionTimeout, e)
		}
		for _, given := range [][2]int64{{5, -1}, {-1, 5}} {
			req := initRequest("id")
			req.ProducerID, req.ProducerEpoch = given[0], int16(given[1])
			_, e := l.initWith(req)
			require.Equal(t, kerr.InvalidRequest, e)
		}
		req := initRequest("id")
		req.TransactionalID = nil
		resp, err := l.of("id").Request(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, kerr.InvalidRequest.Code, resp.(*kmsg.InitProducerIDResponse).ErrorCode)

		ghost := session{"ghost", 5, 0}
		_, e := l.end(ghost, true)
		require.Equal(t, kerr.InvalidProducerIDMapping, e)
		require.Equal(t, []int16{kerr.InvalidProducerIDMapping.Code}, l.add(ghost, t0))
		require.Equal(t, kerr.TransactionalIDNotFound.Code, l.describe("ghost").ErrorCode)
		_, err = l.of("id").Request(t.Context(), kmsg.NewPtrProduceRequest())
		require.ErrorContains(t, err, "Produce")
	})
}

func TestAddPartitions(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		require.Equal(t, []int16{55, 3, 55, 3, 17}, l.add(s, t0, topicPartition{"t", 4}, u0, topicPartition{"none", 0},
			topicPartition{metadata.TxnTopic, 0}))
		require.Equal(t, "Empty 1000/0", l.state("id"), "all or none")
		verify := addRequest(s, t0, t1)
		verify.Transactions[0].VerifyOnly = true
		codes := func() (out []int16) {
			for _, topic := range ask[*kmsg.AddPartitionsToTxnResponse](l, "id", verify).Transactions[0].Topics {
				out = append(out, topic.Partitions[0].ErrorCode)
			}
			return out
		}
		require.Equal(t, []int16{120, 120}, codes())
		l.added(s, t0)
		require.Equal(t, []int16{0, 120}, codes())
		before := l.nodes[0].replicas[0].Leader().Bounds().LogEnd
		l.added(s, t0, t0)
		require.Equal(t, before, l.nodes[0].replicas[0].Leader().Bounds().LogEnd, "nothing to write")
		l.added(s, t0, t1, u0)
		d := l.describe("id")
		require.Len(t, d.Topics, 2)
		require.Equal(t, []int32{0, 1}, d.Topics[0].Partitions)
		require.Equal(t, []int16{kerr.ProducerFenced.Code}, l.add(session{"id", 1000, 1}, t0))

		// Several transactions in one request.
		req := addRequest(s, t0)
		req.Transactions = append(req.Transactions, addRequest(session{"ghost", 1, 1}, t0, u0).Transactions...)
		resp := ask[*kmsg.AddPartitionsToTxnResponse](l, "id", req)
		require.Equal(t, "ghost", resp.Transactions[1].TransactionalID)
		require.Zero(t, resp.Transactions[0].Topics[0].Partitions[0].ErrorCode)
		require.Equal(t, kerr.InvalidProducerIDMapping.Code, resp.Transactions[1].Topics[1].Partitions[0].ErrorCode)
	})
}

func TestAddOffsets(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		add := func(group string) int16 {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = s.id, s.producerID, s.epoch, group
			return ask[*kmsg.AddOffsetsToTxnResponse](l, s.id, req).ErrorCode
		}
		require.Equal(t, kerr.InvalidGroupID.Code, add(""))
		require.Equal(t, kerr.CoordinatorNotAvailable.Code, add("g"))
		l.createTopic(metadata.GroupTopic, 3, nil)
		require.Zero(t, add("g"))
		d := l.describe("id")
		require.Equal(t, metadata.GroupTopic, d.Topics[0].Topic)
		require.Equal(t, []int32{metadata.CoordinatorPartition("g", 3)}, d.Topics[0].Partitions)
		s.epoch++
		require.Equal(t, kerr.ProducerFenced.Code, add("g"))
	})
}

// Whoever wants something of an id while its last transaction is being ended waits a moment, and then is told so.
func TestWhileMarkersAreWritten(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.added(s, t0, u0)
		release := l.blockMarkers()
		s2, e := l.end(s, true)
		require.Nil(t, e, "the decision is answered before the markers are written")
		began := time.Now()
		require.Equal(t, []int16{kerr.ConcurrentTransactions.Code}, l.add(s2, t1))
		require.Equal(t, patience, time.Since(began))
		_, e = l.end(s, true)
		require.Equal(t, kerr.ConcurrentTransactions, e)
		_, e = l.end(s, false)
		require.Equal(t, kerr.InvalidTxnState, e)
		_, e = l.end(s2, false)
		require.Equal(t, kerr.ConcurrentTransactions, e, "of the next transaction")
		_, e = l.init("id")
		require.Equal(t, kerr.ConcurrentTransactions, e)

		ended := make(chan session, 1)
		go func() {
			again, _ := l.end(s, true)
			ended <- again
		}()
		synctest.Wait() // behind the next transaction it would be fenced
		answers := make(chan []int16, 1)
		go func() { answers <- l.add(s2, t1) }()
		synctest.Wait()
		require.Empty(t, answers)
		release()
		require.Equal(t, []int16{0}, <-answers, "it had not to ask again")
		require.Equal(t, s2, <-ended, "nor had who missed the answer")
	})
}

// More requests about one id than may wait are told so at once.
func TestParkedRequestsAreBounded(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.added(s, t0)
		release := l.blockMarkers()
		s2, e := l.end(s, true)
		require.Nil(t, e)
		codes := make(chan int16, 2*maxParked)
		for range 2 * maxParked {
			go func() { codes <- l.add(s2, t1)[0] }()
		}
		synctest.Wait()
		require.Len(t, codes, maxParked)
		for range maxParked {
			require.Equal(t, kerr.ConcurrentTransactions.Code, <-codes)
		}
		release()
		for range maxParked {
			require.Zero(t, <-codes)
		}
	})
}

// Markers are tried again whatever goes wrong that may pass, and only where they are missing.
func TestMarkersAreTriedAgain(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		l.produced(s, u0, 0, "b")
		tries := 0
		l.setMarkers(func(context.Context, *kmsg.WriteTxnMarkersRequest) error {
			if tries++; tries < 4 {
				return errors.New("no answer")
			}
			return nil
		})
		for _, e := range []*kerr.Error{
			kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.RequestTimedOut,
			kerr.NetworkException, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator,
			kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError,
		} {
			l.setCode("t", 0, e.Code)
			time.Sleep(50 * time.Millisecond)
		}
		s2, e := l.end(s, true)
		require.Nil(t, e)
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"b"}, l.read(u0).committed)
		d := l.describe("id")
		require.Len(t, d.Topics, 1, "what is left")
		require.Equal(t, "t", d.Topics[0].Topic)
		last := l.written[len(l.written)-1].Markers[0]
		require.Len(t, last.Topics, 1)
		require.Equal(t, int8(2), last.TransactionVersion)
		require.Equal(t, s2.epoch, last.ProducerEpoch)
		l.setCode("t", 0, 0)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"a"}, l.read(t0).committed)
		require.Equal(t, "CompleteCommit 1000/1", l.state("id"))
		require.Less(t, tries, 20, "with pauses")
	})
}

func TestMarkersOfATopicThatIsDeleted(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		l.added(s, u0)
		l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "u"}}})
		l.ended(s, true)
		require.Equal(t, "CompleteCommit 1000/1", l.state("id"))
		// All of what it has, and while markers are tried.
		s2 := l.started("id")
		l.added(s2, t1)
		l.setCode("t", 1, kerr.NotLeaderForPartition.Code)
		l.ended(s2, true)
		require.Equal(t, "PrepareCommit 1000/3", l.state("id"))
		l.apply(&metadata.DeleteTopics{Topics: []metadata.TopicRef{{Name: "t"}}})
		time.Sleep(2 * time.Second)
		require.Equal(t, "CompleteCommit 1000/3", l.state("id"))
	})
}

func TestMarkersWaitForALeader(t *testing.T) {
	inLab(t, labOptions{nodes: 2}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		l.apply(&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
			{ID: 1, Epoch: l.machine.Image().Broker(1).Epoch, State: metadata.BrokerFenced},
		}})
		require.Equal(t, metadata.NoLeader, l.machine.Image().Topic("t").Partitions[0].Leader)
		_, e := l.end(s, true)
		require.Nil(t, e)
		time.Sleep(10 * time.Second)
		require.Empty(t, l.written)
		l.apply(&metadata.ChangeBrokers{Changes: []metadata.BrokerChange{
			{ID: 1, Epoch: l.machine.Image().Broker(1).Epoch, State: metadata.BrokerActive},
		}})
		time.Sleep(2 * time.Second)
		require.Equal(t, "CompleteCommit 1000/1", l.state("id"))
	})
}

// A partition that knows of a later coordinator or producer ends the trying.
func TestFencedMarkers(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.InvalidProducerEpoch, kerr.TransactionCoordinatorFenced} {
		inLab(t, labOptions{}, func(t *testing.T, l *lab) {
			s := l.started("id")
			l.added(s, t0, u0)
			l.setCode("t", 0, e.Code)
			l.ended(s, true)
			time.Sleep(10 * time.Minute)
			require.Len(t, l.written, 1)
			require.Equal(t, "PrepareCommit 1000/1", l.state("id"))
			require.Equal(t, 1.0, l.nodes[0].metric("millrace_txn_hanging"))
			l.setCode("t", 0, 0)
			l.again()
			require.Equal(t, "CompleteCommit 1000/1", l.state("id"), "the next leader tries again")
		})
	}
}

// Markers of many transactions for one leader go out together, and no more requests than a few at a time.
func TestMarkersGoTogether(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		const n = 200
		var all []session
		for i := range n {
			s := l.started(fmt.Sprint("id ", i))
			l.added(s, t0, u0)
			all = append(all, s)
		}
		release := l.blockMarkers()
		for _, s := range all {
			_, e := l.end(s, true)
			require.Nil(t, e)
		}
		synctest.Wait()
		require.Len(t, l.written, maxUnderWay)
		release()
		require.Len(t, l.written, maxUnderWay+1)
		require.Len(t, l.written[maxUnderWay].Markers, n-maxUnderWay)
		for _, s := range all {
			require.Equal(t, "CompleteCommit", l.describe(s.id).State)
		}
	})
}

// A transaction that is open for too long is aborted, and its producer fenced.
func TestTimeout(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		l.produced(l.started("other"), u0, 0, "b")
		time.Sleep(labTimeout*time.Millisecond - 11*time.Second)
		require.Equal(t, "Ongoing 1000/0", l.state("id"))
		time.Sleep(21 * time.Second)
		require.Equal(t, "CompleteAbort 1000/1", l.state("id"))
		require.Equal(t, "CompleteAbort 1001/1", l.state("other"))
		require.Equal(t, contents{aborted: []string{"a"}, open: none}, l.read(t0))
		_, e := l.end(s, true)
		require.Equal(t, kerr.InvalidTxnState, e)
		require.Equal(t, kerr.InvalidProducerEpoch, l.produce(s, t0, 1, "b"))
		require.Equal(t, kerr.ProducerFenced, l.produce(s, t1, 0, "b"))
		// It finds back by asking for the abort that there was, or for the next epoch.
		s2, e := l.end(s, false)
		require.Nil(t, e)
		again, e := l.bumpOf(s)
		require.Nil(t, e)
		require.Equal(t, s2, again)
		l.produced(s2, t0, 0, "c")
		l.ended(s2, true)
		require.Equal(t, []string{"c"}, l.read(t0).committed)
		require.Equal(t, 2.0, l.nodes[0].metric("millrace_txn_timed_out_total"))
	})
}

// The time that a transaction has goes on under the next leader.
func TestTimeoutAfterFailover(t *testing.T) {
	inLab(t, labOptions{nodes: 2}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		time.Sleep(45 * time.Second)
		l.lead(0, 2)
		time.Sleep(12 * time.Second)
		require.Equal(t, "Ongoing 1000/0", l.state("id"))
		time.Sleep(15 * time.Second)
		require.Equal(t, "CompleteAbort 1000/1", l.state("id"))
	})
}

// More transactions run out of time together than are aborted in one step.
func TestManyTimeouts(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		const n = 3*maxAborts/2 + 1
		for i := range n {
			l.added(l.started(fmt.Sprint("id ", i)), t0)
		}
		time.Sleep(80 * time.Second)
		require.Equal(t, float64(n), l.nodes[0].metric("millrace_txn_timed_out_total"))
		for i := range n {
			require.Equal(t, "CompleteAbort", l.describe(fmt.Sprint("id ", i)).State)
		}
	})
}

// At the last epoch the id gets another producer id, by whichever way the transaction ends.
func TestProducerIDsRunOut(t *testing.T) {
	for name, end := range map[string]func(l *lab, s session) session{
		"commit": func(l *lab, s session) session { return l.ended(s, true) },
		"abort":  func(l *lab, s session) session { return l.ended(s, false) },
		"fence": func(l *lab, s session) session {
			return l.started(s.id)
		},
		"timeout": func(l *lab, s session) session {
			time.Sleep(80 * time.Second)
			next, e := l.end(s, false)
			require.Nil(l.t, e)
			return next
		},
		"bump": func(l *lab, s session) session {
			l.ended(s, true)
			next, e := l.bumpOf(session{s.id, s.producerID, s.epoch})
			require.Nil(l.t, e)
			return next
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, labOptions{lastEpoch: 3}, func(t *testing.T, l *lab) {
				s := l.started("id")
				seen := map[int64]bool{s.producerID: true}
				for i := range 20 {
					require.LessOrEqual(t, s.epoch, int16(3), "the one above is never handed out")
					l.produced(s, t0, 0, fmt.Sprint(i))
					next := end(l, s)
					late := kerr.InvalidProducerEpoch
					require.Equal(t, late, l.produce(s, t0, 1, "late"), "%s, then %s", s, next)
					if next.producerID != s.producerID {
						require.False(t, seen[next.producerID])
						seen[next.producerID] = true
					}
					s = next
				}
				require.Greater(t, len(seen), 4)
				require.Empty(t, l.read(t0).open)
				l.again()
				l.produced(s, t0, 0, "last")
			})
		})
	}
}

// While there is no producer id to go on with nothing is decided, and everything goes on later.
func TestNoProducerIDsAtHand(t *testing.T) {
	inLab(t, labOptions{lastEpoch: 1}, func(t *testing.T, l *lab) {
		l.noIDs.Store(true)
		_, e := l.init("id")
		require.Equal(t, kerr.CoordinatorLoadInProgress, e)
		l.noIDs.Store(false)
		s := l.ended(l.started("id"), false)
		require.Equal(t, int16(1), s.epoch)
		l.produced(s, t0, 0, "a")
		l.noIDs.Store(true)
		_, e = l.end(s, true)
		require.Equal(t, kerr.CoordinatorLoadInProgress, e)
		_, e = l.init("id")
		require.Equal(t, kerr.CoordinatorLoadInProgress, e)
		require.Equal(t, "Ongoing 1000/1", l.state("id"))
		time.Sleep(90 * time.Second)
		require.Equal(t, "Ongoing 1000/1", l.state("id"))
		l.noIDs.Store(false)
		time.Sleep(11 * time.Second)
		require.Equal(t, "CompleteAbort 1001/0", l.state("id"))
		require.Equal(t, []string{"a"}, l.read(t0).aborted)
	})
}

// A transaction is aborted when its timeout is over, whenever it was begun.
func TestAbortedInTime(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		time.Sleep(7 * time.Second)
		long := l.started("long")
		l.added(long, t0)
		req := initRequest("short")
		req.TransactionTimeoutMillis = 2000
		resp := ask[*kmsg.InitProducerIDResponse](l, "short", req)
		require.Zero(t, resp.ErrorCode)
		l.added(session{"short", resp.ProducerID, resp.ProducerEpoch}, u0)
		time.Sleep(1990 * time.Millisecond)
		require.Contains(t, l.state("short"), "Ongoing")
		time.Sleep(2 * abortPause)
		require.Contains(t, l.state("short"), "CompleteAbort")
		require.Contains(t, l.state("long"), "Ongoing")
	})
}

// Where nothing can be written nothing changes, however often it is tried: a fence does not bump the epoch again each
// time, and what is decided is done when writing works again.
func TestAppendsThatFail(t *testing.T) {
	configs := map[string]string{"min.insync.replicas": "2"}
	inLab(t, labOptions{nodes: 2, configs: configs}, func(t *testing.T, l *lab) {
		s := l.started("id")
		l.produced(s, t0, 0, "a")
		done := l.started("done")
		l.produced(done, u0, 0, "b")
		release := l.blockMarkers()
		done, e := l.end(done, true)
		require.Nil(t, e)
		l.setInSync(0, 1)
		release()
		for range 3 {
			_, e := l.init("id")
			require.Equal(t, kerr.CoordinatorNotAvailable, e)
			_, e = l.init("new")
			require.Equal(t, kerr.CoordinatorNotAvailable, e)
			_, e = l.end(s, true)
			require.Equal(t, kerr.CoordinatorNotAvailable, e)
			require.Equal(t, []int16{kerr.CoordinatorNotAvailable.Code}, l.add(s, u0))
		}
		time.Sleep(2*time.Minute + 5*time.Second) // it is beyond its timeout too
		require.Equal(t, []string{"b"}, l.read(u0).committed)
		l.setInSync(0, 1, 2)
		time.Sleep(2 * time.Second)
		require.Equal(t, "CompleteCommit 1001/1", l.state("done"))
		require.Equal(t, "Ongoing 1000/0", l.state("id"), "until it is looked for")
		require.Equal(t, "id 1000/2", l.started("id").String())
		require.Equal(t, []string{"a"}, l.read(t0).aborted)
		require.Equal(t, "done 1001/1", done.String())
	})
}

// While an id gets its producer id nothing else happens to it.
func TestOneChangeAtATime(t *testing.T) {
	inLab(t, labOptions{lastEpoch: 1}, func(t *testing.T, l *lab) {
		open := make(chan struct{})
		l.nodes[0].coordinator.cfg.NewProducerID = func(ctx context.Context) (int64, error) {
			select {
			case <-open:
			case <-ctx.Done():
				return -1, ctx.Err()
			}
			return l.newProducerID(ctx)
		}
		for range 3 {
			go func() { _, _ = l.init("id") }()
		}
		synctest.Wait()
		_, e := l.init("id")
		require.Equal(t, kerr.ConcurrentTransactions, e)
		_, e = l.end(session{"id", 1000, 0}, true)
		require.Equal(t, kerr.InvalidProducerIDMapping, e)
		close(open)
		synctest.Wait()
		require.Equal(t, int64(1000), l.describe("id").ProducerID, "one after the other")
	})
}

func TestNamedProducers(t *testing.T) {
	inLab(t, labOptions{lastEpoch: 1}, func(t *testing.T, l *lab) {
		req := initRequest("id")
		ktag.SetNamed(&req.UnknownTags)
		s, e := l.initWith(req)
		require.Nil(t, e)
		require.True(t, ktag.IsNamed(s.producerID))
		s2 := l.ended(s, false)
		require.Equal(t, s.producerID, s2.producerID)
		l.produced(s2, t0, 0, "a")
		s3 := l.ended(s2, true)
		require.True(t, ktag.IsNamed(s3.producerID))
		require.NotEqual(t, s.producerID, s3.producerID)
		require.False(t, ktag.IsNamed(l.started("id").producerID), "a new process without the tag")
	})
}

// Ids that nobody uses are removed, in batches that the log takes, and are new ids then.
func TestExpiry(t *testing.T) {
	static := map[string]string{"transactional.id.expiration.ms": "7200000"}
	inLab(t, labOptions{static: static}, func(t *testing.T, l *lab) {
		const n = maxTombstones + 500
		for i := range n {
			l.started(fmt.Sprint("id ", i))
		}
		open := l.started("open")
		used := l.started("used")
		l.added(open, t0)
		l.setCode("t", 0, kerr.NotLeaderForPartition.Code)
		time.Sleep(90 * time.Minute)
		l.ended(used, false)
		time.Sleep(91 * time.Minute)
		require.Equal(t, "PrepareAbort", l.describe("open").State, "never while markers are missing")
		require.Equal(t, "CompleteAbort", l.describe("used").State)
		for i := range n {
			require.Equal(t, kerr.TransactionalIDNotFound.Code, l.describe(fmt.Sprint("id ", i)).ErrorCode)
		}
		l.again()
		require.Equal(t, kerr.TransactionalIDNotFound.Code, l.describe("id 7").ErrorCode)
		s := l.started("id 7")
		require.Equal(t, int16(0), s.epoch)
		require.GreaterOrEqual(t, s.producerID, int64(1000+n), "a producer id is never used again")
	})
}

func TestListTransactions(t *testing.T) {
	inLab(t, labOptions{nodes: 1, partitions: 3}, func(t *testing.T, l *lab) {
		l.started("empty")
		l.added(l.started("open"), t0)
		time.Sleep(5 * time.Second)
		l.added(l.started("young"), t0)
		l.ended(l.started("ended"), false)
		list := func(change func(*kmsg.ListTransactionsRequest)) (ids []string, resp *kmsg.ListTransactionsResponse) {
			req := kmsg.NewPtrListTransactionsRequest()
			change(req)
			resp = ask[*kmsg.ListTransactionsResponse](l, "empty", req)
			for _, one := range resp.TransactionStates {
				ids = append(ids, one.TransactionalID)
			}
			return ids, resp
		}
		ids, _ := list(func(*kmsg.ListTransactionsRequest) {})
		require.Equal(t, []string{"empty", "ended", "open", "young"}, ids)
		ids, resp := list(func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing", "Weird"} })
		require.Equal(t, []string{"open", "young"}, ids)
		require.Equal(t, []string{"Weird"}, resp.UnknownStateFilters)
		require.Equal(t, "Ongoing", resp.TransactionStates[0].TransactionState)
		ids, _ = list(func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Weird"} })
		require.Empty(t, ids)
		ids, _ = list(func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{1001, 5} })
		require.Equal(t, []string{"open"}, ids)
		ids, _ = list(func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 4999 })
		require.Equal(t, []string{"open"}, ids)
		ids, _ = list(func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 5000 })
		require.Empty(t, ids)
		ids, _ = list(func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("e.*") })
		require.Equal(t, []string{"empty", "ended"}, ids)
		for _, bad := range []string{"(", strings.Repeat("a", maxPattern+1)} {
			_, resp = list(func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &bad })
			require.Equal(t, kerr.InvalidRegularExpression.Code, resp.ErrorCode)
		}
		for state, n := range map[string]float64{"CompleteAbort": 1, "Empty": 1, "Ongoing": 2, "PrepareCommit": 0} {
			require.Equal(t, n, l.nodes[0].metric("millrace_txn_ids", state), state)
		}
	})
}

// What is not led here is said so, and what is loading too.
func TestWhoIsNotTheCoordinator(t *testing.T) {
	inLab(t, labOptions{nodes: 2}, func(t *testing.T, l *lab) {
		s := l.started("id")
		resp, err := l.node(2).coordinator.Request(t.Context(), initRequest("id"))
		require.NoError(t, err)
		require.Equal(t, kerr.NotCoordinator.Code, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
		l.added(s, t0)
		l.setMarkers(func(ctx context.Context, _ *kmsg.WriteTxnMarkersRequest) error {
			<-ctx.Done()
			return ctx.Err()
		})
		s2, e := l.end(s, true)
		require.Nil(t, e)
		before := l.node(1).coordinator
		code := make(chan int16, 1)
		go func() {
			resp, _ := before.Request(context.Background(), addRequest(s2, t1))
			code <- resp.(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode
		}()
		synctest.Wait()
		l.lead(0, 2)
		synctest.Wait()
		require.Equal(t, kerr.NotCoordinator.Code, <-code, "who is parked is told")
		require.NoError(t, before.Close())
		resp, err = before.Request(t.Context(), initRequest("id"))
		require.NoError(t, err)
		require.Equal(t, kerr.CoordinatorNotAvailable.Code, resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	})
}
