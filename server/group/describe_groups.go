package group

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups (key 15).
//
// Groups of the classic protocol and those that only keep offsets. What there is not, and what is of another protocol,
// is Dead and GROUP_ID_NOT_FOUND.

func (c *Coordinator) handleDescribeGroups(
	ctx context.Context, req *kmsg.DescribeGroupsRequest,
) (*kmsg.DescribeGroupsResponse, error) {
	refuse := func(i int, e *kerr.Error) kmsg.DescribeGroupsResponseGroup {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group, out.ErrorCode, out.ErrorMessage = req.Groups[i], e.Code, kmsg.StringPtr(e.Description)
		return out
	}
	resp := kmsg.NewPtrDescribeGroupsResponse()
	var err error
	resp.Groups, err = each(ctx, c, many[kmsg.DescribeGroupsResponseGroup]{
		ids: req.Groups,
		answer: func(s *shard, i int) kmsg.DescribeGroupsResponseGroup {
			return s.describeGroup(req.Groups[i])
		},
		refuse: refuse,
	})
	return resp, err
}

func (s *shard) describeGroup(id string) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group = id
	g := s.groups[id]
	switch {
	case g == nil || g.consumer != nil:
		why := "Group " + id + " not found."
		if g != nil {
			why = "Group " + id + " is not a classic group."
		}
		out.State, out.ErrorCode, out.ErrorMessage = stateDead, kerr.GroupIDNotFound.Code, &why
	case g.classic != nil:
		g.classic.describe(&out)
	default:
		out.State = stateEmpty
	}
	return out
}
