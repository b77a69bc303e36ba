package consumer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/consumer"
	"millrace/internal/ktag"
)

// noting is a requestor that notes when the coordinator has heard where a member begins.
type noting struct {
	kmsg.Requestor
	heard atomic.Bool
}

func (n *noting) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	told := false
	if beat, ok := r.(*kmsg.ConsumerGroupHeartbeatRequest); ok {
		state, _ := ktag.MemberState(&beat.UnknownTags)
		told = strings.Contains(string(state), `"seeks"`)
	}
	resp, err := n.Requestor.Request(ctx, r)
	if told && err == nil && resp.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode == 0 {
		n.heard.Store(true)
	}
	return resp, err
}

// Where a member begins at the end the coordinator knows before the client hears of anything: the next node that runs
// the member begins there, however soon it does.
func TestTheStartIsKeptBeforeTheFirstAnswer(t *testing.T) {
	e := newEnv(t)
	e.topic("t", 1)
	e.put("t", 0, numbers(0, 3)...)
	n := &noting{Requestor: e.node.Requestor()}
	here := e.members(func(o *consumer.Options) { o.Requests = n })
	k := e.join(here, consumer.Config{Topics: []string{"t"}})
	e.assignment(k, 1)
	require.Empty(t, e.poll(k, consumer.PollRequest{}))
	require.True(t, n.heard.Load())
	here.Close()
	e.put("t", 0, numbers(3, 5)...)
	next, err := e.members().Find(t.Context(), "g", k.ID())
	require.NoError(t, err)
	e.assignment(next, 1)
	require.Equal(t, numbers(3, 5), e.read(next, 2))
}
