package group

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/coordinator"
)

// ListGroups (key 16).
//
// All groups whose partitions this node leads, by id; those of some states or types where filters name any, in whatever
// case. While a partition is loading its groups are missing, and the answer says so.

func (c *Coordinator) handleListGroups(
	ctx context.Context, req *kmsg.ListGroupsRequest,
) (*kmsg.ListGroupsResponse, error) {
	resp := kmsg.NewPtrListGroupsResponse()
	all, missing, err := coordinator.All(ctx, c.run,
		func(st coordinator.State, reply *coordinator.Reply[[]kmsg.ListGroupsResponseGroup]) {
			reply.Send(st.(*shard).list(req))
		})
	if err != nil {
		return nil, err
	}
	resp.Groups, resp.ErrorCode = slices.Concat(all...), codeOf(missing)
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	return resp, nil
}

func (s *shard) list(req *kmsg.ListGroupsRequest) []kmsg.ListGroupsResponseGroup {
	var list []kmsg.ListGroupsResponseGroup
	for _, g := range s.groups {
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.id, g.protocolType(), g.state(), g.kind()
		if passes(req.StatesFilter, out.GroupState) && passes(req.TypesFilter, out.GroupType) && !g.onlyPending() {
			list = append(list, out)
		}
	}
	return list
}

// onlyPending says whether there is nothing of the group but what an open transaction may commit.
func (g *group) onlyPending() bool { return g.classic == nil && g.consumer == nil && g.count == 0 }

// passes says whether a filter lets a name pass; an empty one does.
func passes(filter []string, name string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, name) })
}
