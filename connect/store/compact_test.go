package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millrace/client"
	"millrace/connect/store"
	"millrace/server/servertest"
)

// Who starts when the topics are compacted knows what those know who have read all of them.
func TestReadingCompactedTopics(t *testing.T) {
	broker := alone()
	broker["log.cleaner.backoff.ms"] = "10"
	n := servertest.Start(t, servertest.Options{Broker: broker})
	r := start(t, n.Requestor())
	r.update(store.PutConnector("c0", nil))
	require.NoError(t, r.AddTopics(t.Context(), "c0", 0, "t"))
	_, err := r.OffsetTopic(t.Context())
	require.NoError(t, err)
	topics := []string{store.DefaultConfigTopic, store.DefaultStatusTopic, store.DefaultOffsetTopic}
	for _, name := range topics {
		r.configure(name, map[string]string{
			"segment.bytes": "1048576", "segment.ms": "50", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0",
		})
	}
	chance := rand.New(rand.NewPCG(1, 1))
	began, written, left := time.Now(), 0, 0
	for written <= 300 || left >= written/2 {
		require.Less(t, time.Since(began), 5*time.Minute, "nothing is compacted")
		for range 20 {
			r.changeAnything(chance, &written)
		}
		left = 0
		for _, name := range topics {
			left += len(r.log(name))
		}
	}
	require.NoError(t, r.Fresh(t.Context()))
	require.NoError(t, r.FreshOffsets(t.Context()))

	later := start(t, n.Requestor())
	require.NoError(t, later.AwaitRead(t.Context()))
	require.NoError(t, later.FreshOffsets(t.Context()))
	require.Len(t, later.Configs().Connectors, len(r.Configs().Connectors))
	for i := range 5 {
		name := fmt.Sprint("c", i)
		require.Equal(t, r.TaskStatuses(name), later.TaskStatuses(name))
		require.Equal(t, r.Topics(name), later.Topics(name))
		require.Equal(t, r.Offsets(name), later.Offsets(name))
		was, is := r.Configs().Connectors[name], later.Configs().Connectors[name]
		require.Equal(t, was == nil, is == nil)
		if was != nil {
			require.Equal(t, was.Props, is.Props)
			require.Equal(t, was.Target, is.Target)
			require.Equal(t, was.TasksOffset, is.TasksOffset)
			require.ElementsMatch(t, was.Tasks, is.Tasks)
		}
	}
	require.Zero(t, later.skipped(store.DefaultConfigTopic)+later.skipped(store.DefaultStatusTopic))
}

func (r *running) configure(topic string, settings map[string]string) {
	r.t.Helper()
	change := client.ResourceChanges{Resource: client.Resource{Type: client.TopicResource, Name: topic}}
	for name, value := range settings {
		change.Changes = append(change.Changes, client.ConfigChange{Name: name, Value: &value})
	}
	errs, err := r.client.AlterConfigs(r.t.Context(), []client.ResourceChanges{change}, client.Apply)
	require.NoError(r.t, err)
	require.NoError(r.t, errs[0])
}

// changeAnything writes something by chance, and counts the records.
func (r *running) changeAnything(chance *rand.Rand, written *int) {
	r.t.Helper()
	name, ctx := fmt.Sprint("c", chance.IntN(5)), r.t.Context()
	switch chance.IntN(6) {
	case 0:
		r.update(store.PutConnector(name, props(fmt.Sprint(chance.IntN(9)))), store.SetTarget(name, store.Paused))
		*written += 2
	case 1:
		tasks := make([]map[string]string, chance.IntN(4))
		r.update(store.PutTasks(name, tasks))
		*written += len(tasks) + 1
	case 2:
		if chance.IntN(3) == 0 {
			r.update(store.DeleteConnector(name))
			*written += 2
		}
	case 3:
		st := store.Status{State: "RUNNING", WorkerID: "w", Generation: int64(*written)}
		require.NoError(r.t, r.PutTaskStatus(ctx, name, chance.IntN(3), st, false))
		require.NoError(r.t, r.Fresh(ctx))
		require.NoError(r.t, r.ForgetTaskStatus(ctx, name, 2))
		*written += 2
	case 4:
		require.NoError(r.t, r.AddTopics(ctx, name, 0, fmt.Sprint("t", chance.IntN(9))))
		*written++
	case 5:
		d := client.Decision(chance.IntN(3) > 0)
		r.commit("task", name, d, of("a", int64(*written)), of(fmt.Sprint(chance.IntN(3)), nil), of("b", "x"))
		*written += 3
	}
}
