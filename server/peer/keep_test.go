package peer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/peer"
)

// What a coordinator keeps of a member's request stays as it was after the answer, however many requests come later.
func TestRequestsOfMembersKeepTheirBytes(t *testing.T) {
	var kept []*kmsg.ConsumerGroupHeartbeatRequest
	o := serve(t, func(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
		kept = append(kept, r.(*kmsg.ConsumerGroupHeartbeatRequest))
		return r.ResponseKind(), nil
	}, nil)
	c := peer.NewClient(o)
	for i := range 20 {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID = "g", "m"
		ktag.SetMemberState(&req.UnknownTags, fmt.Appendf(nil, "state %02d", i))
		_, err := req.RequestWith(t.Context(), c)
		require.NoError(t, err)
	}
	for i, req := range kept {
		state, ok := ktag.MemberState(&req.UnknownTags)
		require.True(t, ok)
		require.Equal(t, fmt.Sprintf("state %02d", i), string(state))
	}
}
