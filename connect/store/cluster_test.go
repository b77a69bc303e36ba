package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/client"
	"millrace/connect/plugin"
	"millrace/connect/store"
	"millrace/server/servertest"
)

// unreliable is a cluster that now and then loses a produce on its way, or the answer to one that was carried out.
type unreliable struct {
	to       kmsg.Requestor
	mu       sync.Mutex
	chance   *rand.Rand
	lost     atomic.Int64
	produced func() // called after each produce that was carried out
}

var errLost = errors.New("the message was lost")

// Request implements kmsg.Requestor.
func (u *unreliable) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	if _, ok := r.(*kmsg.ProduceRequest); !ok {
		return u.to.Request(ctx, r)
	}
	u.mu.Lock()
	n := u.chance.IntN(8)
	u.mu.Unlock()
	if n == 0 {
		u.lost.Add(1)
		return nil, errLost
	}
	resp, err := u.to.Request(ctx, r)
	if err == nil {
		u.produced()
	}
	if n == 1 && err == nil {
		u.lost.Add(1)
		return nil, errLost
	}
	return resp, err
}

// count is the number that a connector of the test counts.
func count(c *store.Connector) int {
	if c == nil {
		return 0
	}
	n, _ := strconv.Atoi(c.Props["n"])
	return n
}

// increment counts one further, and again where it was certainly not done. It tells whether that is known.
func increment(ctx context.Context, s *store.Store, name string) (known bool, err error) {
	for ctx.Err() == nil {
		_, err = s.Update(ctx, func(all *store.Configs) ([]store.Change, error) {
			n := count(all.Connectors[name]) + 1
			tasks := make([]map[string]string, n%3)
			for i := range tasks {
				tasks[i] = map[string]string{"n": fmt.Sprint(n)}
			}
			return []store.Change{
				store.PutConnector(name, map[string]string{"n": fmt.Sprint(n)}), store.PutTasks(name, tasks),
			}, nil
		})
		var fault *store.Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &fault) && fault.Unknown:
			return false, nil
		}
	}
	return false, err
}

// Stores on two nodes count the same numbers up at once, while messages are lost and the node that leads the configs is
// killed: no count is lost, none counts twice, and all nodes and whoever starts later see the same.
func TestLeaderIsKilledWhileTwoUpdate(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: alone()})
	require.NoError(t, c.Node(1).AwaitBrokers(t.Context(), 3))
	first := start(t, c.Node(1).Requestor())
	first.update(store.PutConnector("warm", nil))
	topic, err := first.client.Renew(t.Context(), store.DefaultConfigTopic)
	require.NoError(t, err)
	require.Len(t, topic.Partitions[0].Replicas, 3)
	leader := int(topic.Partitions[0].Leader)
	var produced atomic.Int64
	kill := make(chan struct{})
	var stores []*running
	var clusters []*unreliable
	var others []int
	for id := 1; id <= 3; id++ {
		if id == leader {
			continue
		}
		u := &unreliable{to: c.Node(id).Requestor(), chance: rand.New(rand.NewPCG(uint64(id), 1))}
		u.produced = func() {
			if produced.Add(1) == 25 {
				close(kill)
			}
		}
		others, clusters, stores = append(others, id), append(clusters, u), append(stores, start(t, u))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var done, doubt [3]atomic.Int64
	var working sync.WaitGroup
	working.Go(func() {
		<-kill
		_ = c.Node(leader).Kill() // what it says is of no interest to the dead
	})
	for i := range 6 {
		working.Go(func() {
			for j := range 12 {
				known, err := increment(ctx, stores[i%2].Store, fmt.Sprint("c", j%3))
				if err != nil {
					t.Errorf("increment: %v", err)
				} else if known {
					done[j%3].Add(1)
				} else {
					doubt[j%3].Add(1)
				}
			}
		})
	}
	working.Wait()
	require.Positive(t, clusters[0].lost.Load()+clusters[1].lost.Load())
	anew := start(t, c.Node(others[0]).Requestor())
	require.NoError(t, anew.AwaitRead(t.Context()))
	for i := range done {
		name := fmt.Sprint("c", i)
		n := count(anew.Configs().Connectors[name])
		require.GreaterOrEqual(t, n, int(done[i].Load()), "acknowledged")
		require.LessOrEqual(t, n, int(done[i].Load()+doubt[i].Load()), "none counts twice")
		require.Len(t, anew.Configs().Connectors[name].Tasks, n%3)
	}
	for _, s := range stores {
		require.NoError(t, s.Fresh(t.Context()))
		require.Eventually(t, func() bool { // what is in doubt may be written later still
			return reflect.DeepEqual(anew.Configs(), s.Configs())
		}, 30*time.Second, 10*time.Millisecond)
	}
}

// What one node has acknowledged every other one shows at once, and a restarted one too.
func TestEveryNodeShowsWhatIsAcknowledged(t *testing.T) {
	c := servertest.StartCluster(t, servertest.ClusterOptions{Broker: alone()})
	require.NoError(t, c.Node(1).AwaitBrokers(t.Context(), 3))
	var stores []*running
	for id := 1; id <= 3; id++ {
		stores = append(stores, start(t, c.Node(id).Requestor()))
	}
	began := time.Now()
	for i := range 30 {
		name := fmt.Sprint("c", i)
		stores[i%3].update(store.PutConnector(name, props(name)))
		require.NoError(t, stores[i%3].PutConnectorStatus(t.Context(), name, store.Status{State: "RUNNING"}, false))
		stores[(i+2)%3].commit("task", name, client.Commit, of("s", int64(i)))
		next := stores[(i+1)%3]
		require.NoError(t, next.Fresh(t.Context()))
		require.Equal(t, props(name), next.Configs().Connectors[name].Props)
		st, _ := next.ConnectorStatus(name)
		require.Equal(t, "RUNNING", st.State)
		require.NoError(t, next.FreshOffsets(t.Context()))
		require.Equal(t, []plugin.Offset{of("s", int64(i))}, next.Offsets(name))
	}
	t.Logf("30 rounds in %v", time.Since(began))
	for _, name := range []string{store.DefaultConfigTopic, store.DefaultOffsetTopic, store.DefaultStatusTopic} {
		topic, err := stores[0].client.Renew(t.Context(), name)
		require.NoError(t, err)
		require.Len(t, topic.Partitions[0].Replicas, 3, name)
	}
	stores[1].stop()
	c.Stop(2)
	c.Start(2)
	again := start(t, c.Node(2).Requestor())
	require.NoError(t, again.AwaitRead(t.Context()))
	require.NoError(t, again.Fresh(t.Context()))
	require.Len(t, again.Configs().Connectors, 30)
	require.NoError(t, again.FreshOffsets(t.Context()))
	require.Len(t, again.Offsets("c29"), 1)
}

// A topic that is deleted and made anew is read anew.
func TestTopicsMadeAnew(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	r := start(t, n.Requestor())
	r.update(store.PutConnector("old", props("1")))
	require.NoError(t, r.PutConnectorStatus(t.Context(), "old", store.Status{State: "RUNNING"}, false))
	require.NoError(t, r.Fresh(t.Context()))
	require.NoError(t, r.client.DeleteTopic(t.Context(), store.DefaultConfigTopic))
	require.NoError(t, r.client.DeleteTopic(t.Context(), store.DefaultStatusTopic))
	require.NoError(t, r.Fresh(t.Context()))
	require.Empty(t, r.Configs().Connectors)
	_, ok := r.ConnectorStatus("old")
	require.False(t, ok)
	c := r.update(store.PutConnector("new", props("2")))
	require.Len(t, c.Connectors, 1)
	require.Equal(t, int64(1), c.Offset)
}

// Nothing goes on while nothing happens but a waiting fetch for each topic, whatever the number of partitions.
func TestIdleCostsLittle(t *testing.T) {
	n := servertest.Start(t, servertest.Options{Broker: alone()})
	var all atomic.Int64
	counted := requestor(func(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
		all.Add(1)
		return n.Requestor().Request(ctx, r)
	})
	r := start(t, counted)
	r.update(store.PutConnector("c", nil))
	_, err := r.OffsetTopic(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.PutConnectorStatus(t.Context(), "c", store.Status{State: "RUNNING"}, false))
	require.NoError(t, r.Fresh(t.Context()))
	require.NoError(t, r.FreshOffsets(t.Context()))
	before, began := all.Load(), time.Now()
	require.Never(t, func() bool {
		// A fetch and a look at the metadata for each topic; one more, in case a fetch is answered a little too early.
		return all.Load()-before > 3*2*(2+int64(time.Since(began)/(2*time.Second)))
	}, 5*time.Second, 50*time.Millisecond)
}

type requestor func(ctx context.Context, r kmsg.Request) (kmsg.Response, error)

// Request implements kmsg.Requestor.
func (f requestor) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	return f(ctx, r)
}
