package wire_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server"
	"millrace/server/servertest"
)

// groupOn finds a group that has its coordinator on a node.
func groupOn(t *testing.T, to kmsg.Requestor, node int32) string {
	for i := range 200 {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{fmt.Sprint("g", i)}
		var resp *kmsg.FindCoordinatorResponse
		for start := time.Now(); ; {
			var err error
			resp, err = req.RequestWith(t.Context(), to)
			require.NoError(t, err)
			err = kerr.ErrorForCode(resp.Coordinators[0].ErrorCode)
			if !kerr.IsRetriable(err) || time.Since(start) > limit {
				require.NoError(t, err)
				break
			}
			<-time.After(between)
		}
		if resp.Coordinators[0].NodeID == node {
			return req.CoordinatorKeys[0]
		}
	}
	require.Fail(t, "no group has its coordinator there")
	return ""
}

// The coordinator of a group stops, and comes back, and another one after it: the members go on, with the partitions
// that they have, and nothing is missed.
func TestCoordinatorMoves(t *testing.T) {
	t.Parallel()
	c := servertest.StartCluster(t, servertest.ClusterOptions{Change: func(cfg *server.Config) {
		cfg.Broker = settings()
		cfg.Broker["group.initial.rebalance.delay.ms"] = "200"
		cfg.Broker["default.replication.factor"] = "3"
	}})
	to := c.Node(1).Requestor()
	makeTopic(t, to)
	w := &world{t: t, addr: start(t, to).Addr(), read: make(map[string]int)}
	w.opts = []kgo.Opt{kgo.ConsumerGroup(groupOn(t, to, 2)), kgo.Balancers(kgo.CooperativeStickyBalancer())}
	a, b := w.consume("a"), w.consume("b")
	w.share([]int{3, 3}, a, b)
	w.produce()
	for _, node := range []int{2, 3} {
		c.Stop(node)
		w.produce()
		w.share([]int{3, 3}, a, b)
		c.Start(node)
		c.AwaitReady()
	}
	b.leave()
	w.share([]int{6}, a)
	w.produce()
}
