package group

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/coordinator"
)

// Keys lists the request keys that Request answers.
func Keys() []kmsg.Key {
	return []kmsg.Key{
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat,
		kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.OffsetDelete, kmsg.TxnOffsetCommit, kmsg.DescribeGroups,
		kmsg.ConsumerGroupDescribe, kmsg.ListGroups, kmsg.DeleteGroups,
	}
}

// Request answers one request. An error means that there is no answer because the context ended: what was asked for may
// have been done, or may yet be.
func (c *Coordinator) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	resp, err := c.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	resp.SetVersion(r.GetVersion())
	return resp, nil
}

func (c *Coordinator) answer(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.JoinGroupRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleJoinGroup, refuseJoinGroup)
	case *kmsg.SyncGroupRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleSyncGroup, refuseSyncGroup)
	case *kmsg.HeartbeatRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleHeartbeat, refuseHeartbeat)
	case *kmsg.LeaveGroupRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleLeaveGroup, refuseLeaveGroup)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleConsumerGroupHeartbeat,
			refuseConsumerGroupHeartbeat)
	case *kmsg.OffsetCommitRequest:
		return serve(ctx, c, from(req.Group, &req.UnknownTags), req, (*shard).handleOffsetCommit, refuseOffsetCommit)
	case *kmsg.OffsetDeleteRequest:
		return serve(ctx, c, from(req.Group, nil), req, (*shard).handleOffsetDelete, refuseOffsetDelete)
	default:
		return c.answerMany(ctx, r)
	}
}

// answerMany answers what concerns several groups, or more than the group's shard.
func (c *Coordinator) answerMany(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.TxnOffsetCommitRequest:
		return orNone(c.handleTxnOffsetCommit(ctx, req))
	case *kmsg.OffsetFetchRequest:
		return orNone(c.handleOffsetFetch(ctx, req))
	case *kmsg.DescribeGroupsRequest:
		return orNone(c.handleDescribeGroups(ctx, req))
	case *kmsg.ConsumerGroupDescribeRequest:
		return orNone(c.handleConsumerGroupDescribe(ctx, req))
	case *kmsg.ListGroupsRequest:
		return orNone(c.handleListGroups(ctx, req))
	case *kmsg.DeleteGroupsRequest:
		return orNone(c.handleDeleteGroups(ctx, req))
	default:
		return nil, fmt.Errorf("group coordinator does not serve %s (key %d)", kmsg.NameForKey(r.Key()), r.Key())
	}
}

// orNone keeps a nil pointer from becoming a response that is not nil.
func orNone[R kmsg.Response](resp R, err error) (kmsg.Response, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// caller is who sent a request, as far as it is known.
type caller struct{ clientID, host string }

// subject is the group that a request is about, and who sent it.
type subject struct {
	group string
	who   caller
}

func from(group string, tags *kmsg.Tags) subject {
	s := subject{group: group}
	if tags != nil {
		s.who.clientID, s.who.host = ktag.Client(tags)
	}
	return s
}

// serve runs a handler on the loop of the group's partition, and waits for the answer. What Kafka has a code for is
// answered by refuse.
func serve[Q any, R kmsg.Response](ctx context.Context, c *Coordinator, of subject, req Q,
	handle func(*shard, Q, caller, *coordinator.Reply[R]), refuse func(Q, *kerr.Error) R,
) (kmsg.Response, error) {
	number, e := c.partitionOf(of.group)
	if e == nil {
		resp, err := coordinator.Do(ctx, c.run, number, func(st coordinator.State, reply *coordinator.Reply[R]) {
			handle(st.(*shard), req, of.who, reply)
		})
		if err == nil {
			return resp, nil
		}
		if e = coordinator.KafkaError(err); e == nil {
			return nil, err
		}
	}
	return refuse(req, e), nil
}

// many is a request about several groups.
type many[R any] struct {
	ids []string
	// answer runs on the loop of the i-th group's partition.
	answer func(s *shard, i int) R
	refuse func(i int, e *kerr.Error) R
}

// each answers for every group, all partitions at once.
func each[R any](ctx context.Context, c *Coordinator, m many[R]) ([]R, error) {
	out := make([]R, len(m.ids))
	places := make(map[int32][]int)
	for i, id := range m.ids {
		number, e := c.partitionOf(id)
		if e != nil {
			out[i] = m.refuse(i, e)
			continue
		}
		places[number] = append(places[number], i)
	}
	var (
		wg     sync.WaitGroup
		failed = make(chan error, len(places))
	)
	for number, of := range places {
		wg.Go(func() {
			if err := onePartition(ctx, c, number, of, &m, out); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return out, nil
	}
}

// onePartition fills in the answers for the groups of one partition, which stand at the given places.
func onePartition[R any](ctx context.Context, c *Coordinator, number int32, of []int, m *many[R], out []R) error {
	got, err := coordinator.Do(ctx, c.run, number, func(st coordinator.State, reply *coordinator.Reply[[]R]) {
		list := make([]R, len(of))
		for j, i := range of {
			list[j] = m.answer(st.(*shard), i)
		}
		reply.Send(list)
	})
	if err == nil {
		for j, i := range of {
			out[i] = got[j]
		}
		return nil
	}
	e := coordinator.KafkaError(err)
	if e == nil {
		return err
	}
	for _, i := range of {
		out[i] = m.refuse(i, e)
	}
	return nil
}
