package group

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

// joinRequest is how a member joins group g.
func joinRequest(member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = "g", member, 60_000
	req.SubscribedTopicNames = append([]string{}, topics...)
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return req
}

// beatRequest is the heartbeat of a member that has what it was told, and waits for news.
func beatRequest(member string, last *kmsg.ConsumerGroupHeartbeatResponse, has assignment, wait time.Duration,
) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.Topics = "g", member, last.MemberEpoch, reported(has)
	ktag.SetHeartbeatWait(&req.UnknownTags, int32(wait.Milliseconds()))
	return req
}

func TestMembersAreBounded(t *testing.T) {
	many := make([]string, maxSubscribedTopics+1)
	for i := range many {
		many[i] = fmt.Sprint("topic-", i)
	}
	long := strings.Repeat("x", maxMemberID+1)
	for name, c := range map[string]struct {
		change func(*kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		"topics":       {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = many }, kerr.InvalidRequest},
		"fewer topics": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = many[1:] }, nil},
		"topic names": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames = []string{strings.Repeat("x", maxSubscribedBytes+1)}
		}, kerr.InvalidRequest},
		"empty topic name": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicNames = []string{""}
		}, kerr.InvalidRequest},
		"member id":   {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = long }, kerr.InvalidRequest},
		"no UTF-8":    {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "\xff" }, kerr.InvalidRequest},
		"instance id": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &long }, kerr.InvalidRequest},
		"rack":        {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = &long }, kerr.InvalidRequest},
		"client": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			ktag.SetClient(&r.UnknownTags, long+long, long)
		}, nil},
		"pattern": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = kmsg.StringPtr(strings.Repeat("x", maxPattern+1))
		}, kerr.InvalidRegularExpression},
		"two patterns in one": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = kmsg.StringPtr("a)|(?:b")
		}, kerr.InvalidRegularExpression},
		"open group": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = kmsg.StringPtr("(")
		}, kerr.InvalidRegularExpression},
		"pattern that grows": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			r.SubscribedTopicRegex = kmsg.StringPtr("((((x{100}){100}){100}){100})")
		}, kerr.InvalidRegularExpression},
		"state": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			ktag.SetMemberState(&r.UnknownTags, bytes.Repeat([]byte{1}, maxMemberState+1))
		}, kerr.InvalidRequest},
		"less state": {func(r *kmsg.ConsumerGroupHeartbeatRequest) {
			ktag.SetMemberState(&r.UnknownTags, bytes.Repeat([]byte{1}, maxMemberState))
		}, nil},
		"group": {func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = long }, kerr.InvalidGroupID},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, labOptions{}, func(t *testing.T, l *lab) {
				req := joinRequest("m", "t")
				c.change(req)
				resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", req)
				require.Equal(t, codeOf(c.want), resp.ErrorCode)
				if c.want != nil {
					require.NotEmpty(t, *resp.ErrorMessage)
					return
				}
				l.again()
				require.Equal(t, stateStable, l.consumerState("g"))
			})
		})
	}
}

func TestGroupMaxSizeReached(t *testing.T) {
	static := map[string]string{"group.consumer.max.size": "2"}
	inLab(t, labOptions{static: static}, func(t *testing.T, l *lab) {
		send := func(req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
			return ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", req)
		}
		one := joinRequest("a", "t")
		one.InstanceID = kmsg.StringPtr("i")
		require.Zero(t, send(one).ErrorCode)
		require.Zero(t, send(joinRequest("b", "t")).ErrorCode)
		require.Equal(t, kerr.GroupMaxSizeReached.Code, send(joinRequest("c", "t")).ErrorCode)

		// Who comes in the place of another is no more.
		require.Zero(t, send(joinRequest("b", "t")).ErrorCode, "an answer that was lost")
		away := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		away.Group, away.MemberID, away.MemberEpoch, away.InstanceID = "g", "a", -2, kmsg.StringPtr("i")
		require.Zero(t, send(away).ErrorCode)
		one.MemberID = "d"
		require.Zero(t, send(one).ErrorCode)
		gone := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		gone.Group, gone.MemberID, gone.MemberEpoch = "g", "b", -1
		require.Zero(t, send(gone).ErrorCode)
		require.Zero(t, send(joinRequest("c", "t")).ErrorCode)
	})
}

// worker is a member that does what it is told, at once, by heartbeats that wait.
type worker struct {
	id   string
	stop context.CancelFunc

	mu    sync.Mutex
	has   assignment // guarded by mu
	heard time.Time  // guarded by mu: when it last heard of something new
}

// work runs a member until the context of the worker, or of the lab, ends.
func (l *lab) work(id string, session time.Duration, topics ...string) *worker {
	ctx, stop := context.WithCancel(l.ctx)
	w := &worker{id: id, stop: stop}
	l.wg.Go(func() {
		req := joinRequest(id, topics...)
		if session > 0 {
			ktag.SetSessionTimeout(&req.UnknownTags, int32(session.Milliseconds()))
		}
		for ctx.Err() == nil {
			r, err := l.of("g").Request(ctx, req)
			if err != nil {
				return
			}
			resp := r.(*kmsg.ConsumerGroupHeartbeatResponse)
			if resp.ErrorCode != 0 {
				l.t.Errorf("%s: %s", id, nameOf(resp.ErrorCode))
				return
			}
			if a := resp.Assignment; a != nil {
				var lists []topicPartitions
				for _, of := range a.Topics {
					lists = append(lists, topicPartitions{of.TopicID, of.Partitions})
				}
				w.mu.Lock()
				w.has, w.heard = newAssignment(lists), time.Now()
				w.mu.Unlock()
			}
			req = beatRequest(id, resp, w.assignment(), 20*time.Second)
		}
	})
	return w
}

func (w *worker) assignment() assignment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.has
}

// requireShared checks that the workers have all partitions, each one, and as many as the next.
func requireShared(t *testing.T, workers []*worker, partitions int) {
	t.Helper()
	owners := make(map[partitionID]string)
	for _, w := range workers {
		n := w.assignment().count()
		require.InDelta(t, float64(partitions)/float64(len(workers)), n, 1)
		w.assignment().each(func(p partitionID) {
			require.Empty(t, owners[p])
			owners[p] = w.id
		})
	}
	require.Len(t, owners, partitions)
}

// TestPartitionsMoveAtOnce holds a group of 50 members over 200 partitions to this: what a member had that leaves is
// with others at once, and what one had that dies is with others as soon as its session is over.
func TestPartitionsMoveAtOnce(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.createTopic("wide", 200)
		var workers []*worker
		for i := range 50 {
			workers = append(workers, l.work(fmt.Sprintf("w%02d", i), 10*time.Second, "wide"))
		}
		time.Sleep(3 * time.Second)
		requireShared(t, workers, 200)
		require.Equal(t, stateStable, l.consumerState("g"))

		for range 5 {
			gone := workers[0]
			workers = workers[1:]
			leave := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			leave.Group, leave.MemberID, leave.MemberEpoch = "g", gone.id, -1
			gone.stop()
			synctest.Wait()
			start := time.Now()
			require.Zero(t, ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", leave).ErrorCode)
			synctest.Wait()
			require.Zero(t, time.Since(start), "nobody waits for a clock")
			requireShared(t, workers, 200)
		}

		workers[0].stop() // and says nothing any more
		time.Sleep(9*time.Second + 500*time.Millisecond)
		require.Less(t, sum(workers[1:]), 200)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		requireShared(t, workers[1:], 200)
		require.Equal(t, stateStable, l.consumerState("g"))
	})
}

func sum(workers []*worker) (n int) {
	for _, w := range workers {
		n += w.assignment().count()
	}
	return n
}

func TestParkedHeartbeatsOfCallersThatAreGone(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", joinRequest("m", "t"))
		has := assignment{{resp.Assignment.Topics[0].TopicID, resp.Assignment.Topics[0].Partitions}}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := l.of("g").Request(ctx, beatRequest("m", resp, has, 20*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)

		// Nobody was answered, so the session counts from the heartbeat, 45 s; the end of the wait does not renew it.
		time.Sleep(39 * time.Second)
		require.Equal(t, stateStable, l.consumerState("g"))
		time.Sleep(time.Second)
		require.Equal(t, stateEmpty, l.consumerState("g"))
	})
}

// TestNewsWaitForTheirCommit has two members learn of an assignment only when it is committed, the parked one too.
func TestNewsWaitForTheirCommit(t *testing.T) {
	inLab(t, labOptions{nodes: 2}, func(t *testing.T, l *lab) {
		w := l.work("a", 0, "t")
		time.Sleep(2 * time.Second)
		require.Equal(t, 4, w.assignment().count())
		l.node(2).setCut(true)
		done := make(chan *kmsg.ConsumerGroupHeartbeatResponse, 1)
		l.wg.Go(func() { done <- ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", joinRequest("b", "t")) })
		time.Sleep(2 * time.Second)
		require.Empty(t, done)
		require.Equal(t, 4, w.assignment().count())
		l.node(2).setCut(false)
		time.Sleep(time.Second)
		require.Zero(t, (<-done).ErrorCode)
		require.Equal(t, 2, w.assignment().count())
	})
}

// TestAssignmentsLargerThanABatch has more members than one batch of the log holds parts of an assignment.
func TestAssignmentsLargerThanABatch(t *testing.T) {
	inLab(t, labOptions{}, func(t *testing.T, l *lab) {
		l.createTopic("wide", 6000)
		const members = 1500
		tail := strings.Repeat("x", 240)
		var last [members]*kmsg.ConsumerGroupHeartbeatResponse
		for i := range members {
			resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", joinRequest(fmt.Sprint(i, tail), "wide"))
			require.Zero(t, resp.ErrorCode)
			last[i] = resp
			if i == members/2 {
				time.Sleep(time.Second) // half of them are assigned
			}
		}
		time.Sleep(time.Second)
		l.again()
		var told [members]assignment
		for round := range 3 {
			for i := range members {
				req := beatRequest(fmt.Sprint(i, tail), last[i], told[i], 0)
				last[i] = ask[*kmsg.ConsumerGroupHeartbeatResponse](l, "g", req)
				require.Zero(t, last[i].ErrorCode)
				if a := last[i].Assignment; a != nil {
					told[i] = nil
					for _, of := range a.Topics {
						told[i] = assignment{{of.TopicID, of.Partitions}}
					}
				}
				if round == 2 {
					require.Equal(t, 4, told[i].count())
				}
			}
		}
		require.Equal(t, stateStable, l.consumerState("g"))
	})
}
