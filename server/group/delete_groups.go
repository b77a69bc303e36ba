package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// DeleteGroups (key 42).
//
// Groups without members are forgotten, with all that they committed, also in transactions that are open. A group with
// very many offsets goes in several batches, its own records last: if the node fails between, the group is still there
// and can be deleted again.

func (c *Coordinator) handleDeleteGroups(
	ctx context.Context, req *kmsg.DeleteGroupsRequest,
) (*kmsg.DeleteGroupsResponse, error) {
	outcome := func(i int, e *kerr.Error) kmsg.DeleteGroupsResponseGroup {
		out := kmsg.NewDeleteGroupsResponseGroup()
		if out.Group = req.Groups[i]; e != nil {
			out.ErrorCode, out.ErrorMessage = e.Code, kmsg.StringPtr(e.Description)
		}
		return out
	}
	resp := kmsg.NewPtrDeleteGroupsResponse()
	var err error
	resp.Groups, err = each(ctx, c, many[kmsg.DeleteGroupsResponseGroup]{
		ids: req.Groups,
		answer: func(s *shard, i int) kmsg.DeleteGroupsResponseGroup {
			return outcome(i, s.deleteGroup(s.groups[req.Groups[i]]))
		},
		refuse: outcome,
	})
	return resp, err
}

// deleteGroup deletes one group.
func (s *shard) deleteGroup(g *group) *kerr.Error {
	switch {
	case g == nil:
		return kerr.GroupIDNotFound
	case !g.empty():
		return kerr.NonEmptyGroup
	}
	tombstones := make([]coordinator.KV, 0, g.count+len(g.pending)+1)
	for topic, of := range g.offsets {
		for number := range of {
			tombstones = append(tombstones, coordinator.KV{Key: offsetKey(g.id, topic, number)})
		}
	}
	for tp := range g.pending {
		if g.offset(tp.topic, tp.partition) == nil {
			tombstones = append(tombstones, coordinator.KV{Key: offsetKey(g.id, tp.topic, tp.partition)})
		}
	}
	if err := s.bury(append(tombstones, g.tombstones()...)); err != nil {
		return appendRefusal(err)
	}
	return nil
}
